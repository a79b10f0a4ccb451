// Block of IQ1_M: 256 weights in 16 groups of 16: (d · (2 · scale + 1)) · (t ± ⅛). scale has 3 bits; t is −1, 0 or 1. A
// row of the grid of IQ1_S holds 8 t.
#pragma once

#include <cstdint>

#include "base/device_code.h"
#include "tensor/half.h"
#include "tensor/quant/iq1_grid.h"

namespace imp::quant {

struct BlockIQ1_M {
  static constexpr int kElements = 256, kGroups = 16;

  std::uint8_t rows[32];       // byte j: low bits of the row of weights 8j to 8j + 7
  std::uint8_t high_bits[16];  // a nibble per row, low half first: three high bits, then the sign of ⅛
  std::uint16_t scales[4];     // each: 3 bits for each of four groups, then 4 bits of d (f16), lowest first
};
static_assert(sizeof(BlockIQ1_M) == 56);

IMP_DEVICE_CODE float scale_of_all(const BlockIQ1_M& block) noexcept {
  unsigned bits = 0;
  for (int i = 0; i < 4; ++i) bits |= static_cast<unsigned>(block.scales[i] >> 12) << (4 * i);
  return f16_to_f32(static_cast<std::uint16_t>(bits));
}

IMP_DEVICE_CODE void decode(const BlockIQ1_M& block, int begin, int end, float* out) noexcept {
  const float d = scale_of_all(block);
  for (int j = 2 * begin; j < 2 * end; ++j) {
    const float scale = d * static_cast<float>(2 * (block.scales[j / 8] >> (j / 2 % 4 * 3) & 7) + 1);
    const int nibble = block.high_bits[j / 2] >> (j % 2 * 4) & 0x0f;
    const unsigned row = kIq1Grid[block.rows[j] | (nibble & 7) << 8];
    put_trits(row, (nibble & 8) != 0 ? -0.125F : 0.125F, scale, out + 8 * j);
  }
}

}  // namespace imp::quant
