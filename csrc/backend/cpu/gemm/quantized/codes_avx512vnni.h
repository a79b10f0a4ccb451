// Codes in one AVX-512 register, multiplied by vpdpbusd (VNNI).
#pragma once

#include <immintrin.h>

namespace imp::cpu {
namespace {

// Each row of activations has an integer and a float sum in registers. 8 rows keep enough dot products in flight; more
// would not be faster.
constexpr int kTileRows = 8;

struct Codes {
  __m512i v;
};

inline Codes load_codes(const FourBytes& from) {
  return {_mm512_loadu_si512(from)};
}
inline Codes operator|(Codes a, Codes b) {
  return {_mm512_or_si512(a.v, b.v)};
}
template <int from, int n, int to>
inline Codes place(Codes c) {
  __m512i moved = c.v;
  if constexpr (from > to) moved = _mm512_srli_epi16(c.v, from - to);
  if constexpr (from < to) moved = _mm512_slli_epi16(c.v, to - from);
  return {_mm512_and_si512(moved, _mm512_set1_epi8(static_cast<char>(((1 << n) - 1) << to)))};
}
inline Codes look_up(const std::uint8_t (&levels)[16], Codes c) {
  const __m128i table = _mm_loadu_si128(reinterpret_cast<const __m128i*>(levels));
  return {_mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), c.v)};
}

template <CodeRange range>
struct Operand {
  Operand() = default;
  explicit Operand(Codes c) : codes(c.v) {}
  __m512i codes;
};

template <CodeRange range, Part part, int n_panels>
class Dots {
 public:
  void start([[maybe_unused]] const ActivationBlock& x) {
    if constexpr (range.zero_point == 0) {
      sums_ = _mm512_setzero_si512();
    } else {
      sums_ = _mm512_set1_epi32(bias_of<range, part>(x));
    }
  }
  // Multiplies codes 4j to 4j + 3 of x; j ascends.
  void add(const Operand<range>& weights, const ActivationBlock& x, int j) {
    if constexpr (n_panels == 1) {
      // One instruction instead of two. GCC does not combine the broadcast with this multiplication.
      using FourCodes = const std::int8_t[4];
      asm("vpdpbusd %2%{1to16%}, %1, %0"
          : "+v"(sums_)
          : "v"(weights.codes), "m"(reinterpret_cast<FourCodes&>(x.codes[4 * j])));
    } else {
      sums_ = _mm512_dpbusd_epi32(sums_, weights.codes, _mm512_set1_epi32(four_codes(x, j)));
    }
  }
  IntLanes value(const ActivationBlock&) const { return {sums_}; }

 private:
  __m512i sums_;
};

}  // namespace
}  // namespace imp::cpu
