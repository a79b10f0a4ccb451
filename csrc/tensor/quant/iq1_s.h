// Block of IQ1_S: 256 weights in 8 groups of 32: (d · (2 · scale + 1)) · (t ± ⅛). scale has 3 bits; t is −1, 0 or 1. A
// row of the grid of 2048 rows holds 8 t.
#pragma once

#include <cstdint>

#include "base/device_code.h"
#include "tensor/half.h"
#include "tensor/quant/iq1_grid.h"

namespace imp::quant {

struct BlockIQ1_S {
  static constexpr int kElements = 256, kGroups = 8;

  std::uint16_t d;          // f16
  std::uint8_t rows[32];    // byte j: low bits of the row of weights 8j to 8j + 7
  std::uint16_t groups[8];  // each: 3 high bits of each row, 3 bits of scale, the sign of ⅛
};
static_assert(sizeof(BlockIQ1_S) == 50);

IMP_DEVICE_CODE void decode(const BlockIQ1_S& block, int begin, int end, float* out) noexcept {
  const float d = f16_to_f32(block.d);
  for (int j = 4 * begin; j < 4 * end; ++j) {
    const int group = block.groups[j / 4];
    const float scale = d * static_cast<float>(2 * (group >> 12 & 7) + 1);
    const int row = block.rows[j] | (group >> (j % 4 * 3) & 7) << 8;
    put_trits(kIq1Grid[row], (group & 0x8000) != 0 ? -0.125F : 0.125F, scale, out + 8 * j);
  }
}

}  // namespace imp::quant
