// Block of IQ2_XXS: 256 weights in 8 groups of 32: (d · (scale + ½) / 4) · ± level. scale has 4 bits. A row of the grid
// of 256 rows holds 8 levels.
#pragma once

#include <cstdint>

#include "base/device_code.h"
#include "tensor/half.h"
#include "tensor/quant/grid_rows.h"
#include "tensor/quant/iq2_xxs_grid.h"

namespace imp::quant {

struct BlockIQ2_XXS {
  static constexpr int kElements = 256, kGroups = 8;

  struct Group {
    std::uint8_t rows[4];              // byte j: the row of weights 8j to 8j + 7
    std::uint16_t signs_and_scale[2];  // 32 bits, low half first: 7 bits of signs for each row, then the scale
  };
  std::uint16_t d;  // f16
  Group groups[8];
};
static_assert(sizeof(BlockIQ2_XXS) == 66);

IMP_DEVICE_CODE void decode(const BlockIQ2_XXS& block, int begin, int end, float* out) noexcept {
  using Grid = LevelGrid<8, 2, kIq2XxsGrid, kTwoBitLevels>;
  const float d = f16_to_f32(block.d);
  for (int i = begin; i < end; ++i) {
    const auto& group = block.groups[i];
    const unsigned bits = group.signs_and_scale[0] | static_cast<unsigned>(group.signs_and_scale[1]) << 16;
    const float scale = d * (static_cast<float>(bits >> 28) + 0.5F) * 0.25F;
    for (int j = 0; j < 4; ++j) {
      Grid::put(group.rows[j], eight_signs(bits >> (7 * j) & 0x7f), scale, out + 32 * i + 8 * j);
    }
  }
}

}  // namespace imp::quant
