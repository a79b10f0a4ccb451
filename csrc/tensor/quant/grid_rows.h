// Code shared by the types with a grid (codebook): a row of the grid is the magnitudes of several weights; the block
// stores the number of the row and the signs.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/device_code.h"

namespace imp::quant {

// The rows of a grid with each code of `bits` bits, lowest first, replaced by its level at compile time.
template <std::size_t length, int bits, std::size_t n_rows, std::size_t n_levels>
constexpr auto with_levels(const std::uint16_t (&codes)[n_rows], const float (&levels)[n_levels]) {
  static_assert(n_levels == 1 << bits);
  std::array<std::array<float, length>, n_rows> rows{};
  for (std::size_t row = 0; row < n_rows; ++row) {
    for (std::size_t i = 0; i < length; ++i) rows[row][i] = levels[codes[row] >> (bits * i) & (n_levels - 1)];
  }
  return rows;
}

// The levels of all grids with codes of 2 bits; no code is 3.
IMP_DEVICE_TABLE float kTwoBitLevels[4] = {8, 25, 43, 0};

// Derives the eighth sign from seven: the number of negative signs is even.
constexpr unsigned eight_signs(unsigned seven) noexcept {
  return seven | (static_cast<unsigned>(std::popcount(seven)) & 1) << 7;
}

#ifdef __CUDACC__

// A row times the scale, the i-th level negative where bit i of `signs` is set.
template <int length, int bits, const auto& codes, const auto& levels>
struct LevelGrid {
  static __device__ __forceinline__ void put(int row, unsigned signs, float scale, float* out) noexcept {
    const unsigned code = codes[row];
    for (int i = 0; i < length; ++i) {
      const float level = levels[code >> (bits * i) & ((1 << bits) - 1)];
      out[i] = scale * ((signs >> i & 1) != 0 ? -level : level);
    }
  }
};

#else

// Four levels times the scale, the i-th negative where bit i of `signs` is set.
[[gnu::always_inline]] inline void put_four(const float* levels, unsigned signs, float scale, float* out) noexcept {
  using Words = std::uint32_t __attribute__((vector_size(16)));
  using Floats = float __attribute__((vector_size(16)));
  constexpr Words kBits = {1, 2, 4, 8}, kSign = {1U << 31, 1U << 31, 1U << 31, 1U << 31};
  Floats values;
  std::memcpy(&values, levels, sizeof values);
  const auto is_negative = reinterpret_cast<Words>((kBits & signs) == kBits);
  values = scale * reinterpret_cast<Floats>(reinterpret_cast<Words>(values) ^ (is_negative & kSign));
  std::memcpy(out, &values, sizeof values);
}

// On the host the table holds levels instead of codes.
template <int length, int bits, const auto& codes, const auto& levels>
struct LevelGrid {
  static constexpr auto kRows = with_levels<length, bits>(codes, levels);

  [[gnu::always_inline]] static void put(int row, unsigned signs, float scale, float* out) noexcept {
    const float* const its_levels = kRows[static_cast<std::size_t>(row)].data();
    for (int i = 0; i < length; i += 4) put_four(its_levels + i, signs >> i, scale, out + i);
  }
};

#endif

}  // namespace imp::quant
