// Block of Q6_K: 256 weights in 16 groups of 16: (d · scale) · (q − 32), q of 6 bits, scale a signed byte.
#pragma once

#include <cstddef>
#include <cstdint>

namespace imp::quant {

struct BlockQ6_K {
  std::uint8_t low_bits[128];  // byte 64h + i: weight 128h + i in the low half, weight 128h + 64 + i in the high half
  std::uint8_t high_bits[64];  // byte 32h + i: bits 2s of it are the high bits of weight 128h + 32s + i
  std::int8_t scales[16];
  std::uint16_t d;  // f16
};
static_assert(sizeof(BlockQ6_K) == 210);

void dequantize_q6_k(const std::byte* blocks, float* out, std::int64_t n_blocks) noexcept;

}  // namespace imp::quant
