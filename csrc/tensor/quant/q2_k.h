// Block of Q2_K: 256 weights in 16 groups of 16: (d · scale) · q − dmin · min, q of 2 bits, scale and min of 4.
#pragma once

#include <cstddef>
#include <cstdint>

namespace imp::quant {

struct BlockQ2_K {
  std::uint8_t scales[16];  // per group: scale in the low half, min in the high half
  std::uint8_t quants[64];  // byte 32h + i: bits 2s of it are weight 128h + 32s + i
  std::uint16_t d;          // f16
  std::uint16_t dmin;       // f16
};
static_assert(sizeof(BlockQ2_K) == 84);

void dequantize_q2_k(const std::byte* blocks, float* out, std::int64_t n_blocks) noexcept;

}  // namespace imp::quant
