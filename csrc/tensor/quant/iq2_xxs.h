// Block of IQ2_XXS: 256 weights in 8 groups of 32: (d · (scale + ½) / 4) · ± level, scale of 4 bits, 8 levels at a time
// a row of a grid of 256.
#pragma once

#include <cstddef>
#include <cstdint>

namespace imp::quant {

struct BlockIQ2_XXS {
  struct Group {
    std::uint8_t rows[4];              // byte j: of weights 8j to 8j + 7
    std::uint16_t signs_and_scale[2];  // 32 bits, low half first: 7 for the signs of each row, then the scale
  };
  std::uint16_t d;  // f16
  Group groups[8];
};
static_assert(sizeof(BlockIQ2_XXS) == 66);

void dequantize_iq2_xxs(const std::byte* blocks, float* out, std::int64_t n_blocks) noexcept;

}  // namespace imp::quant
