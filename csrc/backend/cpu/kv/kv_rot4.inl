// Blocks of rot4: codes of four bits, for rotated elements. The levels are the best 16 for a Gaussian (Lloyd-Max),
// rounded to 127ths of the greatest.
#pragma once

#include "backend/cpu/kv/kv_q8.inl"
#include "backend/cpu/kv/kv_rotation.inl"

namespace imp::cpu {
namespace {

struct Rot4Block {
  std::uint8_t codes[kKvBlock];  // 0 to 15
  std::uint16_t scale;
};

alignas(64) constexpr float kRot4Levels[16] = {-127, -96, -75, -58, -44, -31, -18, -6, 6, 18, 31, 44, 58, 75, 96, 127};
struct ByteLevels {
  std::uint8_t v[16];
};
// The same plus `offset`, as bytes.
constexpr ByteLevels byte_levels(int offset) {
  ByteLevels levels = {};
  for (int i = 0; i < 16; ++i) levels.v[i] = static_cast<std::uint8_t>(static_cast<int>(kRot4Levels[i]) + offset);
  return levels;
}
// Midpoints of positive levels.
constexpr float kRot4Borders[7] = {12, 24.5F, 37.5F, 51, 66.5F, 85.5F, 111.5F};
// The unit of levels for elements of standard deviation 1, times the widths that are tried.
constexpr float kRot4Unit = 0.02151646F;
constexpr int kTriedWidths = 4;
constexpr float kRot4Units[kTriedWidths] = {0.8F * kRot4Unit, 0.9F * kRot4Unit, kRot4Unit, 1.1F * kRot4Unit};

// The code of the level that is nearest to x: a binary search.
inline IntLanes rot4_codes(Lanes x) {
  const auto& border = kRot4Borders;
  const auto choose = [](Mask below, float lower, float upper) {
    return select(below, broadcast(lower), broadcast(upper));
  };
  const auto count = [](Mask below, int n) { return select(below, broadcast_int(n), broadcast_int(0)); };
  const Lanes magnitude = max(x, zero() - x);
  const Mask half = less(magnitude, broadcast(border[3]));
  const Mask quarter = less(magnitude, choose(half, border[1], border[5]));
  const Lanes last = select(quarter, choose(half, border[0], border[4]), choose(half, border[2], border[6]));
  const IntLanes below = count(half, 4) + count(quarter, 2) + count(less(magnitude, last), 1);
  return select(less(x, zero()), below, broadcast_int(15) - below);
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
inline void quantize_for_cache(const float* x, Rot4Block& out) {
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
    const Lanes inverse = broadcast(1.0F / (deviation * kRot4Units[i]));
    codes[i][0] = rot4_codes(first * inverse);
    codes[i][1] = rot4_codes(second * inverse);
    const Lanes low = lookup(kRot4Levels, codes[i][0]), high = lookup(kRot4Levels, codes[i][1]);
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
