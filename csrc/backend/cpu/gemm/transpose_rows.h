// Transposes 16 rows: for each unit (1, 2 or 4 bytes) the 16 rows' units become contiguous.
//
// Transposes 4 × 4 squares of words in 128-bit vectors, which every supported processor has. That keeps up with memory,
// so there is no wider version.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace imp::cpu {

using FourWords = std::uint32_t __attribute__((vector_size(16)));

// Words unchanged.
struct Unchanged {
  FourWords operator()(FourWords words) const noexcept { return words; }
};

namespace transposition {

constexpr std::size_t kRows = 16, kLineBytes = 64;  // a line: one word of each row

using SixteenBytes = std::uint8_t __attribute__((vector_size(16)));
using EightHalves = std::uint16_t __attribute__((vector_size(16)));

template <class Units = FourWords>
inline Units load(const std::byte* from) noexcept {
  Units units;
  std::memcpy(&units, from, sizeof units);
  return units;
}

template <class Units>
inline void store(std::byte* to, Units units) noexcept {
  std::memcpy(to, &units, sizeof units);
}

// Four words of four rows become four rows of each word.
template <class Change>
inline void transpose_square(const std::byte* rows, std::size_t stride, std::byte* lines,
                             const Change& change) noexcept {
  const FourWords a = load(rows), b = load(rows + stride), c = load(rows + 2 * stride), d = load(rows + 3 * stride);
  const FourWords ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5),
                  ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  const FourWords cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5),
                  cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  store(lines, change(__builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5)));
  store(lines + kLineBytes, change(__builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7)));
  store(lines + 2 * kLineBytes, change(__builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5)));
  store(lines + 3 * kLineBytes, change(__builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7)));
}

// One word of four rows.
template <class Change>
inline void transpose_column(const std::byte* rows, std::size_t stride, std::byte* line,
                             const Change& change) noexcept {
  FourWords words;
  for (int row = 0; row < 4; ++row, rows += stride) {
    std::uint32_t word;
    std::memcpy(&word, rows, sizeof word);
    words[row] = word;
  }
  store(line, change(words));
}

template <class Change>
inline void transpose_words(const std::byte* rows, std::size_t stride, std::size_t n_words, std::byte* lines,
                            const Change& change) noexcept {
  for (std::size_t row = 0; row < kRows; row += 4) {
    const std::byte* const from = rows + row * stride;
    std::byte* const to = lines + 4 * row;
    std::size_t word = 0;
    for (; word + 4 <= n_words; word += 4) transpose_square(from + 4 * word, stride, to + word * kLineBytes, change);
    for (; word < n_words; ++word) transpose_column(from + 4 * word, stride, to + word * kLineBytes, change);
  }
}

inline void shuffle(EightHalves a, EightHalves b, std::byte* to) noexcept {
  store(to, __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11));
  store(to + 16, __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15));
}
inline void shuffle(SixteenBytes a, SixteenBytes b, std::byte* to) noexcept {
  store(to, __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23));
  store(to + 16, __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31));
}

// Splits a line's words into units. The bits of a unit's place in the line are (row, unit of the word). Interleaving
// the halves of the line rotates these bits by one; after the four bits of the row they are (unit of the word, row).
template <class Units>
inline void split_line(std::byte* line) noexcept {
  for (int i = 0; i < 4; ++i) {
    const auto a = load<Units>(line), b = load<Units>(line + 16), c = load<Units>(line + 32),
               d = load<Units>(line + 48);
    shuffle(a, c, line);
    shuffle(b, d, line + 32);
  }
}

}  // namespace transposition

// Transposes n_units of each of 16 rows that begin `stride` bytes apart into [n_units][16 rows][unit bytes]. Applies
// `change` to the words of four rows at a time before it splits them into units.
template <std::size_t unit, class Change = Unchanged>
inline void transpose_rows(const std::byte* rows, std::size_t stride, std::size_t n_units, std::byte* out,
                           const Change& change = {}) noexcept {
  using namespace transposition;
  static_assert(unit == 1 || unit == 2 || unit == 4);
  constexpr std::size_t kWords = 16;  // at a time: one cache line of each row, and output that fits the L1 cache
  const std::size_t n_words = n_units * unit / 4;
  for (std::size_t begin = 0; begin < n_words; begin += kWords) {
    const std::size_t n = std::min(kWords, n_words - begin);
    std::byte* const lines = out + begin * kLineBytes;
    transpose_words(rows + 4 * begin, stride, n, lines, change);
    if constexpr (unit == 2) {
      for (std::size_t word = 0; word < n; ++word) split_line<EightHalves>(lines + word * kLineBytes);
    } else if constexpr (unit == 1) {
      for (std::size_t word = 0; word < n; ++word) split_line<SixteenBytes>(lines + word * kLineBytes);
    }
  }
  for (std::size_t i = n_words * 4 / unit; i < n_units; ++i) {
    for (std::size_t row = 0; row < kRows; ++row) {
      std::memcpy(out + (i * kRows + row) * unit, rows + row * stride + i * unit, unit);
    }
  }
}

}  // namespace imp::cpu
