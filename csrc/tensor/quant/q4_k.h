// Block of Q4_K: 256 weights in 8 groups of 32: (d · scale) · q − dmin · min, q of 4 bits, scale and min of 6.
#pragma once

#include <cstddef>
#include <cstdint>

namespace imp::quant {

struct BlockQ4_K {
  std::uint16_t d;           // f16
  std::uint16_t dmin;        // f16
  std::uint8_t scales[12];   // see unpack_scales_and_mins
  std::uint8_t quants[128];  // byte 32p + i: weight 64p + i in the low half, weight 64p + 32 + i in the high half
};
static_assert(sizeof(BlockQ4_K) == 144);

void dequantize_q4_k(const std::byte* blocks, float* out, std::int64_t n_blocks) noexcept;

}  // namespace imp::quant
