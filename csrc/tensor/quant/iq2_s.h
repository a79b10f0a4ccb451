// Block of IQ2_S: 256 weights in 16 groups of 16: (d · (scale + ½) / 4) · ± level, scale of 4 bits, 8 levels at a time
// a row of a grid of 1024.
#pragma once

#include <cstddef>
#include <cstdint>

namespace imp::quant {

struct BlockIQ2_S {
  std::uint16_t d;            // f16
  std::uint8_t rows[32];      // byte j: low bits of the row of weights 8j to 8j + 7
  std::uint8_t signs[32];     // bit i of byte j: weight 8j + i is negative
  std::uint8_t high_bits[8];  // bits 2s of byte j: the high two of row 4j + s
  std::uint8_t scales[8];     // byte j: group 2j in the low half, group 2j + 1 in the high half
};
static_assert(sizeof(BlockIQ2_S) == 82);

void dequantize_iq2_s(const std::byte* blocks, float* out, std::int64_t n_blocks) noexcept;

}  // namespace imp::quant
