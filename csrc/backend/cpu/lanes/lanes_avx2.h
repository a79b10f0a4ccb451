// Lanes in two AVX2 registers, with FMA and F16C.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace imp::cpu {
namespace {

struct Lanes {
  __m256 lo, hi;
};
struct IntLanes {
  __m256i lo, hi;
};
struct Mask {
  __m256 lo, hi;  // all ones or all zeros per lane
};

// All ones in the first n of eight lanes.
inline __m256i first_lanes(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

inline Lanes zero() {
  return {_mm256_setzero_ps(), _mm256_setzero_ps()};
}
inline Lanes broadcast(float x) {
  return {_mm256_set1_ps(x), _mm256_set1_ps(x)};
}
inline Lanes load(const float* from) {
  return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)};
}
inline Lanes load_partial(const float* from, int n) {
  return {_mm256_maskload_ps(from, first_lanes(n)), _mm256_maskload_ps(from + 8, first_lanes(n - 8))};
}
inline void store(float* to, Lanes x) {
  _mm256_storeu_ps(to, x.lo);
  _mm256_storeu_ps(to + 8, x.hi);
}
inline void store_partial(float* to, Lanes x, int n) {
  _mm256_maskstore_ps(to, first_lanes(n), x.lo);
  _mm256_maskstore_ps(to + 8, first_lanes(n - 8), x.hi);
}

inline Lanes operator+(Lanes a, Lanes b) {
  return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
inline Lanes operator-(Lanes a, Lanes b) {
  return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}
inline Lanes operator*(Lanes a, Lanes b) {
  return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
inline Lanes operator/(Lanes a, Lanes b) {
  return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}
inline Lanes fma(Lanes a, Lanes b, Lanes c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
inline Lanes sqrt(Lanes x) {
  return {_mm256_sqrt_ps(x.lo), _mm256_sqrt_ps(x.hi)};
}
inline Lanes min(Lanes a, Lanes b) {
  return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)};
}
inline Lanes max(Lanes a, Lanes b) {
  return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}
inline Lanes round_even(Lanes x) {
  constexpr int mode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(x.lo, mode), _mm256_round_ps(x.hi, mode)};
}

inline Mask less(Lanes a, Lanes b) {
  return {_mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ)};
}
inline Mask equal(Lanes a, Lanes b) {
  return {_mm256_cmp_ps(a.lo, b.lo, _CMP_EQ_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_EQ_OQ)};
}
inline Mask operator&(Mask a, Mask b) {
  return {_mm256_and_ps(a.lo, b.lo), _mm256_and_ps(a.hi, b.hi)};
}
inline Lanes select(Mask mask, Lanes a, Lanes b) {
  return {_mm256_blendv_ps(b.lo, a.lo, mask.lo), _mm256_blendv_ps(b.hi, a.hi, mask.hi)};
}
inline IntLanes select(Mask mask, IntLanes a, IntLanes b) {
  return {_mm256_blendv_epi8(b.lo, a.lo, _mm256_castps_si256(mask.lo)),
          _mm256_blendv_epi8(b.hi, a.hi, _mm256_castps_si256(mask.hi))};
}
// Lane i as bit i.
inline std::uint32_t mask_bits(Mask mask) {
  return static_cast<std::uint32_t>(_mm256_movemask_ps(mask.lo)) |
         static_cast<std::uint32_t>(_mm256_movemask_ps(mask.hi)) << 8;
}

inline IntLanes broadcast_int(std::int32_t x) {
  return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)};
}
inline IntLanes load_int(const std::int32_t* from) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)),
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + 8))};
}
// from[i % n] in lane i; n is 4, 8 or 16.
template <int n>
inline IntLanes load_repeated(const std::int32_t* from) {
  if constexpr (n == 16) return load_int(from);
  const auto* const words = reinterpret_cast<const __m256i*>(from);
  const __m256i half = n == 8 ? _mm256_loadu_si256(words)
                              : _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  return {half, half};
}
inline void store_int(std::int32_t* to, IntLanes x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), x.lo);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 8), x.hi);
}
inline IntLanes operator+(IntLanes a, IntLanes b) {
  return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)};
}
inline IntLanes operator-(IntLanes a, IntLanes b) {
  return {_mm256_sub_epi32(a.lo, b.lo), _mm256_sub_epi32(a.hi, b.hi)};
}
inline IntLanes operator*(IntLanes a, IntLanes b) {
  return {_mm256_mullo_epi32(a.lo, b.lo), _mm256_mullo_epi32(a.hi, b.hi)};
}
// Lanes as two signed 16-bit halves: per lane the sum of their products.
inline IntLanes dot_halves(IntLanes a, IntLanes b) {
  return {_mm256_madd_epi16(a.lo, b.lo), _mm256_madd_epi16(a.hi, b.hi)};
}
inline IntLanes operator&(IntLanes a, IntLanes b) {
  return {_mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi)};
}
inline IntLanes operator|(IntLanes a, IntLanes b) {
  return {_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)};
}
inline IntLanes operator^(IntLanes a, IntLanes b) {
  return {_mm256_xor_si256(a.lo, b.lo), _mm256_xor_si256(a.hi, b.hi)};
}
inline IntLanes max(IntLanes a, IntLanes b) {
  return {_mm256_max_epi32(a.lo, b.lo), _mm256_max_epi32(a.hi, b.hi)};
}
inline Mask less(IntLanes a, IntLanes b) {
  return {_mm256_castsi256_ps(_mm256_cmpgt_epi32(b.lo, a.lo)), _mm256_castsi256_ps(_mm256_cmpgt_epi32(b.hi, a.hi))};
}
inline Mask equal(IntLanes a, IntLanes b) {
  return {_mm256_castsi256_ps(_mm256_cmpeq_epi32(a.lo, b.lo)), _mm256_castsi256_ps(_mm256_cmpeq_epi32(a.hi, b.hi))};
}
template <int n>
inline IntLanes shift_left(IntLanes x) {
  return {_mm256_slli_epi32(x.lo, n), _mm256_slli_epi32(x.hi, n)};
}
// Shifts in the sign.
template <int n>
inline IntLanes shift_right(IntLanes x) {
  return {_mm256_srai_epi32(x.lo, n), _mm256_srai_epi32(x.hi, n)};
}
// Shifts in zeros.
template <int n>
inline IntLanes shift_right_logical(IntLanes x) {
  return {_mm256_srli_epi32(x.lo, n), _mm256_srli_epi32(x.hi, n)};
}

inline IntLanes bits(Lanes x) {
  return {_mm256_castps_si256(x.lo), _mm256_castps_si256(x.hi)};
}
inline Lanes from_bits(IntLanes x) {
  return {_mm256_castsi256_ps(x.lo), _mm256_castsi256_ps(x.hi)};
}
// To nearest even; INT32_MIN where the value does not fit.
inline IntLanes to_int(Lanes x) {
  return {_mm256_cvtps_epi32(x.lo), _mm256_cvtps_epi32(x.hi)};
}
inline Lanes from_int(IntLanes x) {
  return {_mm256_cvtepi32_ps(x.lo), _mm256_cvtepi32_ps(x.hi)};
}

// 16-bit storage. Conversions to 16 bits round to nearest even; NaN stays NaN.
inline Lanes load_f16(const std::uint16_t* from) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))),
          _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 8)))};
}
inline Lanes broadcast_f16(std::uint16_t x) {
  const __m256 eight = _mm256_cvtph_ps(_mm_set1_epi16(static_cast<short>(x)));
  return {eight, eight};
}
inline void store_f16(std::uint16_t* to, Lanes x) {
  constexpr int mode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(x.lo, mode));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 8), _mm256_cvtps_ph(x.hi, mode));
}
// 16 unsigned 16-bit words, widened.
inline IntLanes load_u16(const std::uint16_t* from) {
  return {_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))),
          _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 8)))};
}
// 16 bytes, widened.
inline IntLanes load_u8(const std::uint8_t* from) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return {_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))};
}
// 16 numbers of F8_E4M3 that are not NaN, scaled by 2^-8: then they are half floats with the same bits after the sign.
inline Lanes load_e4m3_scaled(const std::uint8_t* from) {
  const __m256i words = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  const __m256i halves = _mm256_and_si256(_mm256_slli_epi16(words, 7), _mm256_set1_epi16(static_cast<short>(0xBF80)));
  return {_mm256_cvtph_ps(_mm256_castsi256_si128(halves)), _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1))};
}
// 16 signed bytes, widened.
inline IntLanes load_i8(const std::int8_t* from) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return {_mm256_cvtepi8_epi32(bytes), _mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8))};
}
// 16 pairs of bytes, each byte widened to a signed half of a lane.
inline IntLanes load_i8_pairs(const std::int8_t (&from)[16][2]) {
  return {_mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))),
          _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 8)))};
}
// The lower 16 bits of each lane.
inline void store_u16(std::uint16_t* to, IntLanes x) {
  const __m256i low = _mm256_set1_epi32(0xFFFF);
  const __m256i packed = _mm256_packus_epi32(_mm256_and_si256(x.lo, low), _mm256_and_si256(x.hi, low));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_permute4x64_epi64(packed, 0xD8));
}

// The lower 8 bits of each lane.
inline void store_i8(std::int8_t* to, IntLanes x) {
  const __m256i low = _mm256_set1_epi32(0xFF);
  const __m256i words = _mm256_packus_epi32(_mm256_and_si256(x.lo, low), _mm256_and_si256(x.hi, low));
  const __m256i bytes = _mm256_packus_epi16(words, words);
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 0, 4, 1, 5);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(_mm256_permutevar8x32_epi32(bytes, order)));
}

inline float sum(Lanes x) {
  const __m256 eight = _mm256_add_ps(x.lo, x.hi);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
inline float max_of(Lanes x) {
  const __m256 eight = _mm256_max_ps(x.lo, x.hi);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
inline std::int32_t max_of(IntLanes x) {
  const __m256i eight = _mm256_max_epi32(x.lo, x.hi);
  const __m128i four = _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  const __m128i two = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4E));
  return _mm_cvtsi128_si32(_mm_max_epi32(two, _mm_shuffle_epi32(two, 0xB1)));
}
// Wrapping, as integer sums are.
inline std::int32_t sum(IntLanes x) {
  const __m256i eight = _mm256_add_epi32(x.lo, x.hi);
  const __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  const __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4E));
  return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xB1)));
}

// Lane i gets lane i ^ distance; 1, 2, 4 or 8.
template <int distance>
inline Lanes swap_lanes(Lanes x) {
  if constexpr (distance == 1) return {_mm256_permute_ps(x.lo, 0b10'11'00'01), _mm256_permute_ps(x.hi, 0b10'11'00'01)};
  if constexpr (distance == 2) return {_mm256_permute_ps(x.lo, 0b01'00'11'10), _mm256_permute_ps(x.hi, 0b01'00'11'10)};
  if constexpr (distance == 4) return {_mm256_permute2f128_ps(x.lo, x.lo, 1), _mm256_permute2f128_ps(x.hi, x.hi, 1)};
  if constexpr (distance == 8) return {x.hi, x.lo};
}
// table[index], indices 0 to 15.
inline Lanes lookup(const float (&table)[16], IntLanes index) {
  const Lanes levels = load(table);
  const auto half = [&](__m256i at) {
    const __m256 is_upper = _mm256_castsi256_ps(_mm256_slli_epi32(at, 28));  // bit 3 is the sign
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(levels.lo, at), _mm256_permutevar8x32_ps(levels.hi, at), is_upper);
  };
  return {half(index.lo), half(index.hi)};
}
// table[byte] for each byte, 0 to 15, of the lanes.
inline IntLanes lookup_bytes(const std::uint8_t (&table)[16], IntLanes bytes) {
  const __m256i levels = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
  return {_mm256_shuffle_epi8(levels, bytes.lo), _mm256_shuffle_epi8(levels, bytes.hi)};
}

}  // namespace
}  // namespace imp::cpu
