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
constexpr float kRot4Units[4] = {0.8F * kRot4Unit, 0.9F * kRot4Unit, kRot4Unit, 1.1F * kRot4Unit};

// The code of the level that is nearest to x.
inline IntLanes rot4_codes(Lanes x) {
  const Lanes magnitude = max(x, zero() - x);
  IntLanes below = broadcast_int(0);
  for (const float border : kRot4Borders) {
    below = below + select(less(magnitude, broadcast(border)), broadcast_int(1), broadcast_int(0));
  }
  return select(less(x, zero()), below, broadcast_int(15) - below);
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
  float best = 0, scale = 0;
  IntLanes codes[2] = {};
  for (const float unit : kRot4Units) {
    const Lanes inverse = broadcast(1.0F / (deviation * unit));
    const IntLanes low = rot4_codes(first * inverse), high = rot4_codes(second * inverse);
    const Lanes low_level = lookup(kRot4Levels, low), high_level = lookup(kRot4Levels, high);
    const float product = sum(first * low_level + second * high_level);
    const float closeness = product * product / sum(low_level * low_level + high_level * high_level);
    if (closeness <= best) continue;
    best = closeness;
    scale = squares / product;
    codes[0] = low;
    codes[1] = high;
  }
  std::int8_t stored[kKvBlock];
  store_i8(stored, codes[0]);
  store_i8(stored + kLanes, codes[1]);
  __builtin_memcpy(out.codes, stored, sizeof stored);
  std::uint16_t scales[kLanes];
  store_f16(scales, broadcast(scale));
  out.scale = scales[0] < kF16Infinity ? scales[0] : kF16Nan;
}

}  // namespace
}  // namespace imp::cpu
