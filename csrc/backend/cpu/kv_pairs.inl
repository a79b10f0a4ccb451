// Pairs of bfloat16 as attention reads and multiplies them: whole where an instruction does, else in two parts of which
// registers hold one at a time.
#pragma once

#include "backend/cpu/lanes_pairs.h"

namespace imp::cpu {
namespace {

#if defined(__AVX512BF16__)
constexpr int kPairParts = 1;
using PairPart = Pairs;
template <int part>
inline PairPart part_of_pairs(IntLanes x) {
  return pairs_of(x);
}

// A factor that pairs are multiplied by, as memory holds it.
using PairFactor = std::uint16_t;
// Of words rounded by round_bf16.
inline void store_factors(PairFactor* to, IntLanes rounded) {
  store_u16(to, shift_right_logical<16>(rounded));
}
// Rounds as round_bf16 does what is no denormal and no NaN with bits that a bfloat16 drops, and returns what it stored.
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

// A float: factors are read often, and taken apart once.
using PairFactor = float;
inline void store_factors(PairFactor* to, IntLanes rounded) {
  store(to, from_bits(rounded & broadcast_int(static_cast<std::int32_t>(0xFFFF0000))));
}
inline Lanes store_rounded(PairFactor* to, Lanes x) {
  const IntLanes word = bits(x);
  const IntLanes odd = shift_right_logical<16>(word) & broadcast_int(1);
  const IntLanes rounded = word + broadcast_int(0x7FFF) + odd;
  store_factors(to, rounded);
  return from_bits(rounded & broadcast_int(static_cast<std::int32_t>(0xFFFF0000)));
}
template <int part>
inline PairPart broadcast_factors(const PairFactor* from) {
  return broadcast(from[1 - part]);
}
#endif

}  // namespace
}  // namespace imp::cpu
