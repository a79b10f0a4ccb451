// What the types of grids share: several weights are one row of a grid that the format fixes, with signs beside it.
#pragma once

#include <bit>
#include <cstdint>

namespace imp::quant {

// Seven signs, and an eighth that makes the number of negative ones even.
constexpr unsigned eight_signs(unsigned seven) noexcept {
  return seven | (static_cast<unsigned>(std::popcount(seven)) & 1) << 7;
}

// The 2-bit codes of a row of 8 are one of three levels; those of a row of 4 have 3 bits. Bit i of `signs` is set
// where weight i is negative.
constexpr void put_row_of_8(unsigned row, unsigned signs, float scale, float* out) noexcept {
  constexpr float kLevels[4] = {8, 25, 43};
  for (int i = 0; i < 8; ++i) {
    const float level = kLevels[(row >> (2 * i)) & 3];
    out[i] = scale * ((signs >> i & 1) != 0 ? -level : level);
  }
}

constexpr void put_row_of_4(unsigned row, unsigned signs, const float (&levels)[8], float scale, float* out) noexcept {
  for (int i = 0; i < 4; ++i) {
    const float level = levels[(row >> (3 * i)) & 7];
    out[i] = scale * ((signs >> i & 1) != 0 ? -level : level);
  }
}

}  // namespace imp::quant
