// Block of IQ3_S: 256 weights in 8 groups of 32: (d · (2 · scale + 1)) · ± level. scale has 4 bits. A row of the grid
// of 512 rows holds 4 levels.
#pragma once

#include <cstdint>

#include "base/device_code.h"
#include "tensor/half.h"
#include "tensor/quant/grid_rows.h"
#include "tensor/quant/iq3_s_grid.h"

namespace imp::quant {

struct BlockIQ3_S {
  static constexpr int kElements = 256, kGroups = 8;

  std::uint16_t d;            // f16
  std::uint8_t rows[64];      // byte j: low bits of the row of weights 4j to 4j + 3
  std::uint8_t high_bits[8];  // bit i of byte j: the ninth bit of row 8j + i
  std::uint8_t signs[32];     // bit i of byte j: weight 8j + i is negative
  std::uint8_t scales[4];     // byte j: group 2j in the low half, group 2j + 1 in the high half
};
static_assert(sizeof(BlockIQ3_S) == 110);

IMP_DEVICE_TABLE float kIq3SLevels[8] = {1, 3, 5, 7, 9, 11, 13, 15};

IMP_DEVICE_CODE void decode(const BlockIQ3_S& block, int begin, int end, float* out) noexcept {
  using Grid = LevelGrid<4, 3, kIq3SGrid, kIq3SLevels>;
  const float d = f16_to_f32(block.d);
  for (int j = 4 * begin; j < 4 * end; ++j) {
    const float scale = d * static_cast<float>(2 * (block.scales[j / 8] >> (j / 4 % 2 * 4) & 0x0f) + 1);
    const int high_bits = block.high_bits[j / 4] >> (j % 4 * 2);
    const int first = block.rows[2 * j] | (high_bits & 1) << 8;
    const int last = block.rows[2 * j + 1] | (high_bits & 2) << 7;
    const unsigned signs = block.signs[j];
    Grid::put(first, signs, scale, out + 8 * j);
    Grid::put(last, signs >> 4, scale, out + 8 * j + 4);
  }
}

}  // namespace imp::quant
