// Block of IQ3_S: 256 weights in 8 groups of 32: (d · (2 · scale + 1)) · ± level, scale of 4 bits, 4 levels at a time a
// row of a grid of 512.
#pragma once

#include <cstddef>
#include <cstdint>

namespace imp::quant {

struct BlockIQ3_S {
  std::uint16_t d;            // f16
  std::uint8_t rows[64];      // byte j: low bits of the row of weights 4j to 4j + 3
  std::uint8_t high_bits[8];  // bit i of byte j: the ninth of row 8j + i
  std::uint8_t signs[32];     // bit i of byte j: weight 8j + i is negative
  std::uint8_t scales[4];     // byte j: group 2j in the low half, group 2j + 1 in the high half
};
static_assert(sizeof(BlockIQ3_S) == 110);

void dequantize_iq3_s(const std::byte* blocks, float* out, std::int64_t n_blocks) noexcept;

}  // namespace imp::quant
