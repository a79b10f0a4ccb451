// Block of Q4_0: 32 weights d · (q − 8), q of 4 bits.
#pragma once

#include <cstddef>
#include <cstdint>

namespace imp::quant {

struct BlockQ4_0 {
  std::uint16_t d;          // f16
  std::uint8_t quants[16];  // byte i: weight i in the low half, weight i + 16 in the high half
};
static_assert(sizeof(BlockQ4_0) == 18);

void dequantize_q4_0(const std::byte* blocks, float* out, std::int64_t n_blocks) noexcept;

}  // namespace imp::quant
