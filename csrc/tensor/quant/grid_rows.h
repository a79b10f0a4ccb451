// What the types of grids share: several weights are one row of a grid that the format fixes, with signs beside it.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace imp::quant {

// A grid whose codes of `bits` bits, the first one lowest, are replaced by their levels at compile time.
template <std::size_t length, int bits, std::size_t n_rows, std::size_t n_levels>
constexpr auto with_levels(const std::uint16_t (&codes)[n_rows], const float (&levels)[n_levels]) {
  static_assert(n_levels == 1 << bits);
  std::array<std::array<float, length>, n_rows> rows{};
  for (std::size_t row = 0; row < n_rows; ++row) {
    for (std::size_t i = 0; i < length; ++i) rows[row][i] = levels[codes[row] >> (bits * i) & (n_levels - 1)];
  }
  return rows;
}

// What codes of 2 bits mean in all grids of such; none is 3.
inline constexpr float kTwoBitLevels[4] = {8, 25, 43, 0};

// Seven signs, and an eighth that makes the number of negative ones even.
constexpr unsigned eight_signs(unsigned seven) noexcept {
  return seven | (static_cast<unsigned>(std::popcount(seven)) & 1) << 7;
}

// Four levels times the scale, the i-th negative where bit i of `signs` is set.
inline void put_four(const float* levels, unsigned signs, float scale, float* out) noexcept {
  using Words = std::uint32_t __attribute__((vector_size(16)));
  using Floats = float __attribute__((vector_size(16)));
  constexpr Words kBits = {1, 2, 4, 8}, kSign = {1U << 31, 1U << 31, 1U << 31, 1U << 31};
  Floats values;
  std::memcpy(&values, levels, sizeof values);
  const auto is_negative = reinterpret_cast<Words>((kBits & signs) == kBits);
  values = scale * reinterpret_cast<Floats>(reinterpret_cast<Words>(values) ^ (is_negative & kSign));
  std::memcpy(out, &values, sizeof values);
}

inline void put_eight(const std::array<float, 8>& levels, unsigned signs, float scale, float* out) noexcept {
  put_four(levels.data(), signs, scale, out);
  put_four(levels.data() + 4, signs >> 4, scale, out + 4);
}

}  // namespace imp::quant
