// Blocks of rot4, rot3 and rot2: codes of 4, 3 or 2 bits, for rotated elements. The levels are the best ones for a
// Gaussian (Lloyd-Max), rounded to 127ths of the greatest.
#pragma once

#include "backend/cpu/kv/kv_q8.inl"
#include "backend/cpu/kv/kv_rotation.inl"

namespace imp::cpu {
namespace {

template <int bits>
struct LevelBlock {
  std::uint8_t codes[kKvBlock];  // below 2^bits
  std::uint16_t scale;
};

// The positive levels, and their unit for elements of standard deviation 1.
template <int bits>
struct Levels;
template <>
struct Levels<4> {
  static constexpr float kPositive[8] = {6, 18, 31, 44, 58, 75, 96, 127};
  static constexpr float kUnit = 0.02151646F;
};
template <>
struct Levels<3> {
  static constexpr float kPositive[4] = {14, 45, 79, 127};
  static constexpr float kUnit = 0.01694446F;
};
template <>
struct Levels<2> {
  static constexpr float kPositive[2] = {38, 127};
  static constexpr float kUnit = 0.01189305F;
};
template <int bits>
constexpr int kPositiveLevels = 1 << (bits - 1);

// By code, the lowest first.
template <int bits>
constexpr float level_of(int code) {
  constexpr int half = kPositiveLevels<bits>;
  return code < half ? -Levels<bits>::kPositive[half - 1 - code] : Levels<bits>::kPositive[code - half];
}
struct LevelTable {
  alignas(64) float v[16];
};
template <int bits>
constexpr LevelTable level_table() {
  LevelTable table = {};
  for (int code = 0; code < 2 * kPositiveLevels<bits>; ++code) table.v[code] = level_of<bits>(code);
  return table;
}
template <int bits>
constexpr LevelTable kLevels = level_table<bits>();

constexpr int kTriedWidths = 4;
constexpr float kWidths[kTriedWidths] = {0.8F, 0.9F, 1, 1.1F};

// The border between two positive levels that a binary search compares with next, given its comparisons so far.
template <int bits, int n_compared>
inline Lanes next_border(const Mask* below, int middle) {
  if constexpr (n_compared == 0) {
    return broadcast((Levels<bits>::kPositive[middle] + Levels<bits>::kPositive[middle + 1]) / 2);
  } else {
    constexpr int step = kPositiveLevels<bits> >> (n_compared + 1);
    const auto next = [=](int place) { return next_border<bits, n_compared - 1>(below, place); };
    return select(below[n_compared - 1], next(middle - step), next(middle + step));
  }
}
template <int bits, int n_compared = 0>
inline void compare_with_borders(Lanes magnitude, Mask* below) {
  if constexpr (n_compared < bits - 1) {
    below[n_compared] = less(magnitude, next_border<bits, n_compared>(below, kPositiveLevels<bits> / 2 - 1));
    compare_with_borders<bits, n_compared + 1>(magnitude, below);
  }
}

// The code of the level that is nearest to x.
template <int bits>
inline IntLanes code_of(Lanes x) {
  Mask below[bits - 1];
  compare_with_borders<bits>(max(x, zero() - x), below);
  IntLanes n_below = broadcast_int(0);
  for (int i = 0; i < bits - 1; ++i) {
    n_below = n_below + select(below[i], broadcast_int(kPositiveLevels<bits> >> (i + 1)), broadcast_int(0));
  }
  return select(less(x, zero()), n_below, broadcast_int(2 * kPositiveLevels<bits> - 1) - n_below);
}

// a + its lanes `distance` apart, where a lane's number has no such bit; the same of b elsewhere.
template <int distance>
inline Lanes fold(Lanes a, Lanes b) {
  const Mask upper = less(load(kButterflySigns[distance == 8 ? 3 : distance / 2]), zero());
  return select(upper, b, a) + swap_lanes<distance>(select(upper, a, b));
}
// The sums of eight vectors' lanes, with the bits of sum(). That of vector v is at [sum_place(v)].
inline void eight_sums(const Lanes (&x)[8], float (&sums)[kLanes]) {
  const Lanes first = fold<4>(fold<8>(x[0], x[1]), fold<8>(x[2], x[3]));
  const Lanes last = fold<4>(fold<8>(x[4], x[5]), fold<8>(x[6], x[7]));
  const Lanes all = fold<2>(first, last);
  store(sums, all + swap_lanes<1>(all));
}
constexpr int sum_place(int vector) {
  return vector % 2 * 8 + vector / 2 % 2 * 4 + vector / 4 * 2;
}

constexpr std::uint16_t kF16Infinity = 0x7C00, kF16Nan = 0x7E00;

// Of four widths the one whose levels have the smallest angle to x. The scale keeps the product of x with its stored
// form: |x|² = scale · x · levels. A scale that is not finite becomes NaN, which marks the block.
template <int bits>
inline void quantize_for_cache(const float* x, LevelBlock<bits>& out) {
  const Lanes first = load(x), second = load(x + kLanes);
  const float squares = sum(first * first + second * second);
  const float deviation = __builtin_sqrtf(squares / kKvBlock);
  __builtin_memset(out.codes, 0, sizeof out.codes);
  out.scale = 0;
  if (deviation == 0) return;
  if (!(deviation < __builtin_inff())) {
    out.scale = kF16Nan;
    return;
  }
  IntLanes codes[kTriedWidths][2];
  Lanes sums_of[2 * kTriedWidths];  // of products with x, and of squares
  for (int i = 0; i < kTriedWidths; ++i) {
    const Lanes inverse = broadcast(1.0F / (deviation * (kWidths[i] * Levels<bits>::kUnit)));
    codes[i][0] = code_of<bits>(first * inverse);
    codes[i][1] = code_of<bits>(second * inverse);
    const Lanes low = lookup(kLevels<bits>.v, codes[i][0]), high = lookup(kLevels<bits>.v, codes[i][1]);
    sums_of[i] = first * low + second * high;
    sums_of[kTriedWidths + i] = low * low + high * high;
  }
  float sums[kLanes];
  eight_sums(sums_of, sums);
  float closest = 0;
  int best = 0;
  for (int i = 0; i < kTriedWidths; ++i) {
    const float product = sums[sum_place(i)], closeness = product * product / sums[sum_place(kTriedWidths + i)];
    if (closeness <= closest) continue;
    closest = closeness;
    best = i;
  }
  if (closest == 0) return;
  std::int8_t stored[kKvBlock];
  store_i8(stored, codes[best][0]);
  store_i8(stored + kLanes, codes[best][1]);
  __builtin_memcpy(out.codes, stored, sizeof stored);
  std::uint16_t scales[kLanes];
  store_f16(scales, broadcast(squares / sums[sum_place(best)]));
  out.scale = scales[0] < kF16Infinity ? scales[0] : kF16Nan;
}

}  // namespace
}  // namespace imp::cpu
