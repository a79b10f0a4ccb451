// Block of IQ2_S: 256 weights in 16 groups of 16: (d · (scale + ½) / 4) · ± level. scale has 4 bits. A row of the grid
// of 1024 rows holds 8 levels.
#pragma once

#include <cstdint>

#include "base/device_code.h"
#include "tensor/half.h"
#include "tensor/quant/grid_rows.h"
#include "tensor/quant/iq2_s_grid.h"

namespace imp::quant {

struct BlockIQ2_S {
  static constexpr int kElements = 256, kGroups = 16;

  std::uint16_t d;            // f16
  std::uint8_t rows[32];      // byte j: low bits of the row of weights 8j to 8j + 7
  std::uint8_t signs[32];     // bit i of byte j: weight 8j + i is negative
  std::uint8_t high_bits[8];  // bits 2s and 2s + 1 of byte j: the high two of row 4j + s
  std::uint8_t scales[8];     // byte j: group 2j in the low half, group 2j + 1 in the high half
};
static_assert(sizeof(BlockIQ2_S) == 82);

IMP_DEVICE_CODE void decode(const BlockIQ2_S& block, int begin, int end, float* out) noexcept {
  using Grid = LevelGrid<8, 2, kIq2SGrid, kTwoBitLevels>;
  const float d = f16_to_f32(block.d);
  for (int j = 2 * begin; j < 2 * end; ++j) {
    const int nibble = block.scales[j / 4] >> (j / 2 % 2 * 4) & 0x0f;
    const float scale = d * (static_cast<float>(nibble) + 0.5F) * 0.25F;
    const int row = block.rows[j] | (block.high_bits[j / 4] >> (j % 4 * 2) & 3) << 8;
    Grid::put(row, block.signs[j], scale, out + 8 * j);
  }
}

}  // namespace imp::quant
