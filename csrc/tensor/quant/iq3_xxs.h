// Block of IQ3_XXS: 256 weights in 8 groups of 32: (d · (scale + ½) / 2) · ± level. scale has 4 bits. A row of the grid
// of 256 rows holds 4 levels.
#pragma once

#include <cstdint>

#include "base/device_code.h"
#include "tensor/half.h"
#include "tensor/quant/grid_rows.h"
#include "tensor/quant/iq3_xxs_grid.h"

namespace imp::quant {

struct BlockIQ3_XXS {
  static constexpr int kElements = 256, kGroups = 8;

  std::uint16_t d;                       // f16
  std::uint8_t rows[64];                 // byte j: the row of weights 4j to 4j + 3
  std::uint16_t signs_and_scales[8][2];  // 32 bits per group, low half first: 7 bits for each 8 signs, then the scale
};
static_assert(sizeof(BlockIQ3_XXS) == 98);

IMP_DEVICE_TABLE float kIq3XxsLevels[8] = {4, 12, 20, 28, 36, 44, 52, 62};

IMP_DEVICE_CODE void decode(const BlockIQ3_XXS& block, int begin, int end, float* out) noexcept {
  using Grid = LevelGrid<4, 3, kIq3XxsGrid, kIq3XxsLevels>;
  const float d = f16_to_f32(block.d);
  for (int group = begin; group < end; ++group) {
    const auto& halves = block.signs_and_scales[group];
    const unsigned bits = halves[0] | static_cast<unsigned>(halves[1]) << 16;
    const float scale = d * (static_cast<float>(bits >> 28) + 0.5F) * 0.5F;
    for (int j = 0; j < 4; ++j) {
      const std::uint8_t* rows = block.rows + 8 * group + 2 * j;
      const unsigned signs = eight_signs(bits >> (7 * j) & 0x7f);
      float* const eight = out + 32 * group + 8 * j;
      Grid::put(rows[0], signs, scale, eight);
      Grid::put(rows[1], signs >> 4, scale, eight + 4);
    }
  }
}

}  // namespace imp::quant
