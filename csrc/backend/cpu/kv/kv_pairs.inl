// Pairs of bfloat16 for attention: multiplied by one instruction if there is one, else in two parts.
#pragma once

#include "backend/cpu/lanes/lanes_pairs.h"

namespace imp::cpu {
namespace {

// The high halves of 32 words as pairs of neighbours; those of x come first.
inline IntLanes join_upper_halves(IntLanes x, IntLanes y) {
#if defined(__AVX512BW__)
  alignas(64) constexpr std::uint16_t kUpper[2 * kLanes] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21,
                                                            23, 25, 27, 29, 31, 33, 35, 37, 39, 41, 43,
                                                            45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
  return {_mm512_permutex2var_epi16(x.v, _mm512_loadu_si512(kUpper), y.v)};
#else
  std::uint16_t halves[2 * kLanes];
  store_u16(halves, shift_right_logical<16>(x));
  store_u16(halves + kLanes, shift_right_logical<16>(y));
  std::int32_t words[kLanes];
  __builtin_memcpy(words, halves, sizeof words);
  return load_int(words);
#endif
}

#if defined(__AVX512BF16__)
constexpr int kPairParts = 1;
using PairPart = Pairs;
template <int part>
inline PairPart part_of_pairs(IntLanes x) {
  return pairs_of(x);
}

// A factor for pairs, as a row of weights has it. A word of a query has kPairWordElements.
using PairFactor = std::uint16_t;
constexpr int kPairWordElements = 2;
// The first n elements of a row as words of a query; denormals become zero.
inline IntLanes pair_factor_words(const float* row, int n) {
  const Lanes upper = load_up_to(row + kLanes, n > kLanes ? n - kLanes : 0);
  return {__builtin_bit_cast(__m512i, _mm512_cvtne2ps_pbh(upper.v, load_up_to(row, n).v))};
}
template <int part>
inline PairPart broadcast_query(const float* words, int) {
  return pairs_of(bits(broadcast(*words)));
}
// Rounds like round_bf16, for values that are neither denormal nor NaN. Returns the rounded values.
inline Lanes store_rounded(PairFactor* to, Lanes x) {
  const __m256i rounded = __builtin_bit_cast(__m256i, _mm512_cvtneps_pbh(x.v));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), rounded);
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(rounded), 16))};
}
// Two neighbours, for every pair.
template <int part>
inline PairPart broadcast_factors(const PairFactor* from) {
  std::uint32_t pair;
  __builtin_memcpy(&pair, from, sizeof pair);
  return broadcast_pair(pair);
}
#else
constexpr int kPairParts = 2;
// Part 0 is the odd elements, part 1 the even ones.
using PairPart = Lanes;
template <int part>
inline PairPart part_of_pairs(IntLanes x) {
  return from_bits(part == 0 ? x & broadcast_int(static_cast<std::int32_t>(0xFFFF0000)) : shift_left<16>(x));
}
inline Lanes add_product(Lanes sum, PairPart a, PairPart b) {
  return fma(a, b, sum);
}

// Factors are stored as floats: they are split once and read often.
using PairFactor = float;
constexpr int kPairWordElements = 1;
inline IntLanes pair_factor_words(const float* row, int n) {
  const Lanes x = load_up_to(row, n);
  const Mask is_denormal = less(bits(x) & broadcast_int(0x7FFFFFFF), broadcast_int(0x00800000));
  return select(is_denormal, broadcast_int(0), round_bf16(x) & broadcast_int(static_cast<std::int32_t>(0xFFFF0000)));
}
template <int part>
inline PairPart broadcast_query(const float* words, int stride) {
  return broadcast(words[(1 - part) * stride]);
}
inline Lanes store_rounded(PairFactor* to, Lanes x) {
  const IntLanes word = bits(x);
  const IntLanes odd = shift_right_logical<16>(word) & broadcast_int(1);
  const Lanes rounded =
      from_bits((word + broadcast_int(0x7FFF) + odd) & broadcast_int(static_cast<std::int32_t>(0xFFFF0000)));
  store(to, rounded);
  return rounded;
}
template <int part>
inline PairPart broadcast_factors(const PairFactor* from) {
  return broadcast(from[1 - part]);
}
#endif

}  // namespace
}  // namespace imp::cpu
