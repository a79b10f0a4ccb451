// Block of IQ3_XXS: 256 weights in 8 groups of 32: (d · (scale + ½) / 2) · ± level, scale of 4 bits, 4 levels at a time
// a row of a grid of 256.
#pragma once

#include <cstddef>
#include <cstdint>

namespace imp::quant {

struct BlockIQ3_XXS {
  std::uint16_t d;                       // f16
  std::uint8_t rows[64];                 // byte j: of weights 4j to 4j + 3
  std::uint16_t signs_and_scales[8][2];  // of a group 32 bits, low half first: 7 for each 8 signs, then the scale
};
static_assert(sizeof(BlockIQ3_XXS) == 98);

void dequantize_iq3_xxs(const std::byte* blocks, float* out, std::int64_t n_blocks) noexcept;

}  // namespace imp::quant
