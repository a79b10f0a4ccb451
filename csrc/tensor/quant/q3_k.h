// Block of Q3_K: 256 weights in 16 groups of 16: (d · (scale − 32)) · (q − 4), q of 3 bits, scale of 6.
#pragma once

#include <cstddef>
#include <cstdint>

namespace imp::quant {

struct BlockQ3_K {
  std::uint8_t high_bits[32];  // bit 4h + s of byte i: third bit of weight 128h + 32s + i
  std::uint8_t quants[64];     // byte 32h + i: bits 2s of it are the low bits of weight 128h + 32s + i
  std::uint8_t scales[12];  // byte j < 8: low halves of scales j and j + 8; byte 8 + j: high bits of j, j+4, j+8, j+12
  std::uint16_t d;          // f16
};
static_assert(sizeof(BlockQ3_K) == 110);

void dequantize_q3_k(const std::byte* blocks, float* out, std::int64_t n_blocks) noexcept;

}  // namespace imp::quant
