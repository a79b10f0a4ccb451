// Sixteen pairs of bfloat16 and their products: each pair adds its odd product, then its even one, as AVX-512 BF16
// does.
#pragma once

#include "backend/cpu/lanes/lanes.h"

namespace imp::cpu {
namespace {

#if defined(__AVX512BF16__)
struct Pairs {
  __m512bh v;
};
// The even element is the low half of a word.
inline Pairs pairs_of(IntLanes x) {
  return {__builtin_bit_cast(__m512bh, x.v)};
}
inline Lanes add_product(Lanes sum, Pairs a, Pairs b) {
  return {_mm512_dpbf16_ps(sum.v, a.v, b.v)};
}
#else
struct Pairs {
  Lanes even, odd;
};
// The even element is the low half of a word.
inline Pairs pairs_of(IntLanes x) {
  return {from_bits(shift_left<16>(x)), from_bits(x & broadcast_int(static_cast<std::int32_t>(0xFFFF0000)))};
}
inline Lanes add_product(Lanes sum, Pairs a, Pairs b) {
  return fma(a.even, b.even, fma(a.odd, b.odd, sum));
}
#endif

inline IntLanes load_words(const std::uint32_t* from) {
  return bits(load(reinterpret_cast<const float*>(from)));
}
inline Pairs load_pairs(const std::uint32_t* from) {
  return pairs_of(load_words(from));
}
inline Pairs broadcast_pair(std::uint32_t pair) {
  return pairs_of(broadcast_int(static_cast<std::int32_t>(pair)));
}

}  // namespace
}  // namespace imp::cpu
