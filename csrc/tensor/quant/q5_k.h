// Block of Q5_K: 256 weights in 8 groups of 32: (d · scale) · q − dmin · min, q of 5 bits, scale and min of 6.
#pragma once

#include <cstddef>
#include <cstdint>

namespace imp::quant {

struct BlockQ5_K {
  std::uint16_t d;             // f16
  std::uint16_t dmin;          // f16
  std::uint8_t scales[12];     // see unpack_scales_and_mins
  std::uint8_t high_bits[32];  // bit g of byte i: fifth bit of weight 32g + i
  std::uint8_t quants[128];    // byte 32p + i: weight 64p + i in the low half, weight 64p + 32 + i in the high half
};
static_assert(sizeof(BlockQ5_K) == 176);

void dequantize_q5_k(const std::byte* blocks, float* out, std::int64_t n_blocks) noexcept;

}  // namespace imp::quant
