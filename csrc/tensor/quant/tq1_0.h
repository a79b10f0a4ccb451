// Block of TQ1_0: 256 weights d · (t − 1), t of 3 values, five to a byte.
#pragma once

#include <cstddef>
#include <cstdint>

namespace imp::quant {

// A byte is the fraction, in 256ths rounded up, whose digits in base 3 are the weights' t, the first one leading.
struct BlockTQ1_0 {
  std::uint8_t five_of_32[32];  // byte i: weights i, 32 + i … 128 + i
  std::uint8_t five_of_16[16];  // byte i: weights 160 + i, 176 + i … 224 + i
  std::uint8_t four_of_4[4];    // byte i: weights 240 + i, 244 + i … 252 + i
  std::uint16_t d;              // f16
};
static_assert(sizeof(BlockTQ1_0) == 54);

void dequantize_tq1_0(const std::byte* blocks, float* out, std::int64_t n_blocks) noexcept;

}  // namespace imp::quant
