// Block of IQ2_XS: 256 weights in 16 groups of 16: (d · (scale + ½) / 4) · ± level, scale of 4 bits, 8 levels at a time
// a row of a grid of 512.
#pragma once

#include <cstddef>
#include <cstdint>

namespace imp::quant {

struct BlockIQ2_XS {
  std::uint16_t d;                   // f16
  std::uint16_t rows_and_signs[32];  // of weights 8j to 8j + 7: 9 bits for the row, then 7 for its signs
  std::uint8_t scales[8];            // byte j: group 2j in the low half, group 2j + 1 in the high half
};
static_assert(sizeof(BlockIQ2_XS) == 74);

void dequantize_iq2_xs(const std::byte* blocks, float* out, std::int64_t n_blocks) noexcept;

}  // namespace imp::quant
