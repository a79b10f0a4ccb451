// Codes in two AVX2 registers. Uses AVX-VNNI if the including file is compiled for it.
#pragma once

#include <immintrin.h>

namespace imp::cpu {
namespace {

// The integer sums of 4 rows, two weight vectors with their pairs, and some temporaries fill 16 registers. The float
// sums are used once per 32 elements and may live in memory.
constexpr int kTileRows = 4;

struct Codes {
  __m256i lo, hi;
};

inline Codes load_codes(const FourBytes& from) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)),
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + 8))};
}
inline Codes operator|(Codes a, Codes b) {
  return {_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)};
}
template <int from, int n, int to>
inline __m256i place(__m256i c) {
  if constexpr (from > to) c = _mm256_srli_epi16(c, from - to);
  if constexpr (from < to) c = _mm256_slli_epi16(c, to - from);
  return _mm256_and_si256(c, _mm256_set1_epi8(static_cast<char>(((1 << n) - 1) << to)));
}
template <int from, int n, int to>
inline Codes place(Codes c) {
  return {place<from, n, to>(c.lo), place<from, n, to>(c.hi)};
}
inline Codes look_up(const std::uint8_t (&levels)[16], Codes c) {
  const __m256i table = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(levels)));
  return {_mm256_shuffle_epi8(table, c.lo), _mm256_shuffle_epi8(table, c.hi)};
}

inline __m256i broadcast_four(const ActivationBlock& x, int j) {
  return _mm256_set1_epi32(four_codes(x, j));
}

#if defined(__AVXVNNI__)

template <CodeRange range>
struct Operand {
  Operand() = default;
  explicit Operand(Codes c) : codes(c) {}
  Codes codes;
};

template <CodeRange range, Part part, int n_panels>
class Dots {
 public:
  void start([[maybe_unused]] const ActivationBlock& x) {
    if constexpr (range.zero_point == 0) {
      lo_ = hi_ = _mm256_setzero_si256();
    } else {
      lo_ = hi_ = _mm256_set1_epi32(bias_of<range, part>(x));
    }
  }
  void add(const Operand<range>& weights, const ActivationBlock& x, int j) {
    lo_ = _mm256_dpbusd_avx_epi32(lo_, weights.codes.lo, broadcast_four(x, j));
    hi_ = _mm256_dpbusd_avx_epi32(hi_, weights.codes.hi, broadcast_four(x, j));
  }
  IntLanes value(const ActivationBlock&) const { return {lo_, hi_}; }

 private:
  __m256i lo_, hi_;
};

#else

// Makes the compiler add each product at once. Otherwise GCC computes the products of a whole group, stores them on the
// stack and adds them at the end, at half the speed.
inline void finish_sums(__m256i& lo, __m256i& hi) {
  __asm__("" : "+x"(lo), "+x"(hi));
}

inline __m256i add_pairs(__m256i sums, __m256i pairs) {
  return _mm256_add_epi32(sums, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

// maddubs multiplies unsigned by signed bytes and adds pairs in 16 bits. Codes up to 129 with activations up to 127 do
// not overflow. Wider codes are made signed, and their sign moves to the activation.
template <CodeRange range>
inline constexpr bool kIsWide = 2 * 127 * range.most > 32767;

template <CodeRange range>
struct Operand {
  Operand() = default;
  explicit Operand(Codes c) : codes(c) {}
  Codes codes;
};

template <CodeRange range>
  requires kIsWide<range>
struct Operand<range> {
  static_assert(range.zero_point == 128);
  Operand() = default;
  explicit Operand(Codes c)
      : codes{_mm256_xor_si256(c.lo, _mm256_set1_epi8(-128)), _mm256_xor_si256(c.hi, _mm256_set1_epi8(-128))},
        magnitudes{_mm256_abs_epi8(codes.lo), _mm256_abs_epi8(codes.hi)} {}
  Codes codes;
  Codes magnitudes;
};

// Adds pairs in 16 bits as long as they cannot overflow.
template <CodeRange range, Part part, int n_panels>
class Dots {
 public:
  void start(const ActivationBlock&) { lo_ = hi_ = low_pairs_ = high_pairs_ = _mm256_setzero_si256(); }
  void add(const Operand<range>& weights, const ActivationBlock& x, int j) {
    if (j % kPairsAtMost == 0) flush();
    low_pairs_ = _mm256_add_epi16(low_pairs_, _mm256_maddubs_epi16(weights.codes.lo, broadcast_four(x, j)));
    high_pairs_ = _mm256_add_epi16(high_pairs_, _mm256_maddubs_epi16(weights.codes.hi, broadcast_four(x, j)));
    finish_sums(low_pairs_, high_pairs_);
  }
  IntLanes value([[maybe_unused]] const ActivationBlock& x) const {
    const IntLanes sums = {add_pairs(lo_, low_pairs_), add_pairs(hi_, high_pairs_)};
    if constexpr (range.zero_point == 0) {
      return sums;
    } else {
      return sums + broadcast_int(bias_of<range, part>(x));
    }
  }

 private:
  static constexpr int kPairsAtMost = 32767 / (2 * 127 * range.most) >= 8 ? 8 : 32767 / (2 * 127 * range.most);
  void flush() {
    lo_ = add_pairs(lo_, low_pairs_);
    hi_ = add_pairs(hi_, high_pairs_);
    low_pairs_ = high_pairs_ = _mm256_setzero_si256();
  }
  __m256i lo_, hi_, low_pairs_, high_pairs_;
};

template <CodeRange range, Part part, int n_panels>
  requires kIsWide<range>
class Dots<range, part, n_panels> {
 public:
  void start(const ActivationBlock&) { lo_ = hi_ = _mm256_setzero_si256(); }
  void add(const Operand<range>& weights, const ActivationBlock& x, int j) {
    const __m256i four = broadcast_four(x, j);
    lo_ = add_pairs(lo_, _mm256_maddubs_epi16(weights.magnitudes.lo, _mm256_sign_epi8(four, weights.codes.lo)));
    hi_ = add_pairs(hi_, _mm256_maddubs_epi16(weights.magnitudes.hi, _mm256_sign_epi8(four, weights.codes.hi)));
    finish_sums(lo_, hi_);
  }
  IntLanes value(const ActivationBlock&) const { return {lo_, hi_}; }

 private:
  __m256i lo_, hi_;
};

#endif

}  // namespace
}  // namespace imp::cpu
