// Block of Q5_1: 32 weights d · q + m, q of 5 bits.
#pragma once

#include <cstddef>
#include <cstdint>

namespace imp::quant {

struct BlockQ5_1 {
  std::uint16_t d;            // f16
  std::uint16_t m;            // f16
  std::uint8_t high_bits[4];  // little-endian 32 bits: bit i is the fifth bit of weight i
  std::uint8_t quants[16];    // byte i: weight i in the low half, weight i + 16 in the high half
};
static_assert(sizeof(BlockQ5_1) == 24);

void dequantize_q5_1(const std::byte* blocks, float* out, std::int64_t n_blocks) noexcept;

}  // namespace imp::quant
