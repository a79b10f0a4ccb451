// Block of IQ2_XS: 256 weights in 16 groups of 16: (d · (scale + ½) / 4) · ± level. scale has 4 bits. A row of the grid
// of 512 rows holds 8 levels.
#pragma once

#include <cstdint>

#include "base/device_code.h"
#include "tensor/half.h"
#include "tensor/quant/grid_rows.h"
#include "tensor/quant/iq2_xs_grid.h"

namespace imp::quant {

struct BlockIQ2_XS {
  static constexpr int kElements = 256, kGroups = 16;

  std::uint16_t d;                   // f16
  std::uint16_t rows_and_signs[32];  // element j, for weights 8j to 8j + 7: 9 bits of row, then 7 of signs
  std::uint8_t scales[8];            // byte j: group 2j in the low half, group 2j + 1 in the high half
};
static_assert(sizeof(BlockIQ2_XS) == 74);

IMP_DEVICE_CODE void decode(const BlockIQ2_XS& block, int begin, int end, float* out) noexcept {
  using Grid = LevelGrid<8, 2, kIq2XsGrid, kTwoBitLevels>;
  const float d = f16_to_f32(block.d);
  for (int j = 2 * begin; j < 2 * end; ++j) {
    const int nibble = block.scales[j / 4] >> (j / 2 % 2 * 4) & 0x0f;
    const float scale = d * (static_cast<float>(nibble) + 0.5F) * 0.25F;
    const unsigned bits = block.rows_and_signs[j];
    Grid::put(static_cast<int>(bits & 0x1ff), eight_signs(bits >> 9), scale, out + 8 * j);
  }
}

}  // namespace imp::quant
