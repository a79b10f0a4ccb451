// Bit changes of codes between a file and a panel, for a word of one row or vectors of several rows' words.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace imp::cpu {

// Flips the top bit, which adds 128 to each of four bytes, or subtracts it.
template <class Word>
Word flip_top_bits(Word word) noexcept {
  return word ^ 0x80808080U;
}

// Moves bit i of a word to position j: the number i with its bits p and q exchanged (a delta swap); p > q.
template <unsigned p, unsigned q, class Word>
Word exchange(Word word) noexcept {
  constexpr unsigned kDistance = (1U << p) - (1U << q);
  constexpr std::uint32_t kMoved = [] {  // bits that move up
    std::uint32_t mask = 0;
    for (unsigned i = 0; i < 32; ++i) mask |= ((i >> p & 1U) == 0 && (i >> q & 1U) == 1 ? 1U : 0U) << i;
    return mask;
  }();
  const Word moved = ((word >> kDistance) ^ word) & kMoved;
  return word ^ moved ^ (moved << kDistance);
}

// Moves bit 4j + b to bit 8b + j.
template <class Word>
Word spread_bits(Word word) noexcept {
  return exchange<1, 0>(exchange<2, 1>(exchange<3, 0>(exchange<4, 1>(word))));
}

template <class Word>
Word gather_bits(Word word) noexcept {
  return exchange<4, 1>(exchange<3, 0>(exchange<2, 1>(exchange<1, 0>(word))));
}

// Codes of Q6_K, 64 words of four. The j-th word of group g = 4h + q has its low four bits and its high two in
// different places in the file; in the panel it is as in PanelBlockQ6_K.
constexpr std::size_t kLowWordsQ6_K = 32, kFileWordsQ6_K = 48;

// The place of a word's codes in the file: the words of their low bits (a nibble, from bit low_shift on) and high bits.
struct PlaceQ6_K {
  std::size_t low, high;
  unsigned low_shift, high_shift;
};

constexpr PlaceQ6_K place_of(std::size_t word) noexcept {
  const std::size_t half = word / 32, quarter = word / 8 % 4, j = word % 8;
  return {16 * half + 8 * (quarter % 2) + j, kLowWordsQ6_K + 8 * half + j, static_cast<unsigned>(quarter / 2 * 4),
          static_cast<unsigned>(2 * quarter)};
}

constexpr std::uint32_t kTwoBits = 0x03030303, kFourBits = 0x0F0F0F0F, kSixBits = 0x3F3F3F3F;

// Calls store(i, unit) for each unit of the panel; load(i) returns the file's words.
template <class Word, class Load, class Store>
void regroup_q6_k(const Load& load, const Store& store) noexcept {
#pragma GCC unroll 16  // makes every place and shift a constant
  for (std::size_t i = 0; i < 64; i += 4) {
    Word words[4];
    for (std::size_t j = 0; j < 4; ++j) {
      const PlaceQ6_K place = place_of(i + j);
      words[j] = (load(place.low) >> place.low_shift & kFourBits) | (load(place.high) >> place.high_shift & kTwoBits)
                                                                        << 4;
    }
    for (std::size_t j = 0; j < 3; ++j) store(3 * i / 4 + j, words[j] | (words[3] >> (2 * j) & kTwoBits) << 6);
  }
}

// The file's words from the panel's units that load(i) returns.
template <class Load>
std::array<std::uint32_t, kFileWordsQ6_K> ungroup_q6_k(const Load& load) noexcept {
  std::array<std::uint32_t, kFileWordsQ6_K> file{};
  for (std::size_t i = 0; i < 64; i += 4) {
    std::uint32_t words[4] = {};
    for (std::size_t j = 0; j < 3; ++j) {
      const std::uint32_t unit = load(3 * i / 4 + j);
      words[j] = unit & kSixBits;
      words[3] |= (unit >> 6 & kTwoBits) << (2 * j);
    }
    for (std::size_t j = 0; j < 4; ++j) {
      const PlaceQ6_K place = place_of(i + j);
      file[place.low] |= (words[j] & kFourBits) << place.low_shift;
      file[place.high] |= (words[j] >> 4 & kTwoBits) << place.high_shift;
    }
  }
  return file;
}

}  // namespace imp::cpu
