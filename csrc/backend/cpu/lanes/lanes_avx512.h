// Lanes in one AVX-512 register.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace imp::cpu {
namespace {

struct Lanes {
  __m512 v;
};
struct IntLanes {
  __m512i v;
};
struct Mask {
  __mmask16 v;
};

inline __mmask16 first_lanes(int n) {
  return static_cast<__mmask16>((1U << n) - 1U);
}

inline Lanes zero() {
  return {_mm512_setzero_ps()};
}
inline Lanes broadcast(float x) {
  return {_mm512_set1_ps(x)};
}
inline Lanes load(const float* from) {
  return {_mm512_loadu_ps(from)};
}
inline Lanes load_partial(const float* from, int n) {
  return {_mm512_maskz_loadu_ps(first_lanes(n), from)};
}
inline void store(float* to, Lanes x) {
  _mm512_storeu_ps(to, x.v);
}
inline void store_partial(float* to, Lanes x, int n) {
  _mm512_mask_storeu_ps(to, first_lanes(n), x.v);
}

inline Lanes operator+(Lanes a, Lanes b) {
  return {_mm512_add_ps(a.v, b.v)};
}
inline Lanes operator-(Lanes a, Lanes b) {
  return {_mm512_sub_ps(a.v, b.v)};
}
inline Lanes operator*(Lanes a, Lanes b) {
  return {_mm512_mul_ps(a.v, b.v)};
}
inline Lanes operator/(Lanes a, Lanes b) {
  return {_mm512_div_ps(a.v, b.v)};
}
inline Lanes fma(Lanes a, Lanes b, Lanes c) {
  return {_mm512_fmadd_ps(a.v, b.v, c.v)};
}
inline Lanes sqrt(Lanes x) {
  return {_mm512_sqrt_ps(x.v)};
}
inline Lanes min(Lanes a, Lanes b) {
  return {_mm512_min_ps(a.v, b.v)};
}
inline Lanes max(Lanes a, Lanes b) {
  return {_mm512_max_ps(a.v, b.v)};
}
inline Lanes round_even(Lanes x) {
  return {_mm512_roundscale_ps(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}

inline Mask less(Lanes a, Lanes b) {
  return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)};
}
inline Mask equal(Lanes a, Lanes b) {
  return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ)};
}
inline Mask operator&(Mask a, Mask b) {
  return {static_cast<__mmask16>(a.v & b.v)};
}
inline Lanes select(Mask mask, Lanes a, Lanes b) {
  return {_mm512_mask_blend_ps(mask.v, b.v, a.v)};
}
inline IntLanes select(Mask mask, IntLanes a, IntLanes b) {
  return {_mm512_mask_blend_epi32(mask.v, b.v, a.v)};
}
// Lane i as bit i.
inline std::uint32_t mask_bits(Mask mask) {
  return mask.v;
}

inline IntLanes broadcast_int(std::int32_t x) {
  return {_mm512_set1_epi32(x)};
}
inline IntLanes load_int(const std::int32_t* from) {
  return {_mm512_loadu_si512(from)};
}
// from[i % n] in lane i; n is 4, 8 or 16.
template <int n>
inline IntLanes load_repeated(const std::int32_t* from) {
  if constexpr (n == 4) return {_mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)))};
  if constexpr (n == 8) return {_mm512_broadcast_i64x4(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)))};
  return load_int(from);
}
inline void store_int(std::int32_t* to, IntLanes x) {
  _mm512_storeu_si512(to, x.v);
}
inline IntLanes operator+(IntLanes a, IntLanes b) {
  return {_mm512_add_epi32(a.v, b.v)};
}
inline IntLanes operator-(IntLanes a, IntLanes b) {
  return {_mm512_sub_epi32(a.v, b.v)};
}
inline IntLanes operator*(IntLanes a, IntLanes b) {
  return {_mm512_mullo_epi32(a.v, b.v)};
}
// Lanes as two signed 16-bit halves: per lane the sum of their products.
inline IntLanes dot_halves(IntLanes a, IntLanes b) {
  return {_mm512_madd_epi16(a.v, b.v)};
}
inline IntLanes operator&(IntLanes a, IntLanes b) {
  return {_mm512_and_si512(a.v, b.v)};
}
inline IntLanes operator|(IntLanes a, IntLanes b) {
  return {_mm512_or_si512(a.v, b.v)};
}
inline IntLanes operator^(IntLanes a, IntLanes b) {
  return {_mm512_xor_si512(a.v, b.v)};
}
inline IntLanes max(IntLanes a, IntLanes b) {
  return {_mm512_max_epi32(a.v, b.v)};
}
inline Mask less(IntLanes a, IntLanes b) {
  return {_mm512_cmplt_epi32_mask(a.v, b.v)};
}
inline Mask equal(IntLanes a, IntLanes b) {
  return {_mm512_cmpeq_epi32_mask(a.v, b.v)};
}
template <int n>
inline IntLanes shift_left(IntLanes x) {
  return {_mm512_slli_epi32(x.v, n)};
}
// Shifts in the sign.
template <int n>
inline IntLanes shift_right(IntLanes x) {
  return {_mm512_srai_epi32(x.v, n)};
}
// Shifts in zeros.
template <int n>
inline IntLanes shift_right_logical(IntLanes x) {
  return {_mm512_srli_epi32(x.v, n)};
}

inline IntLanes bits(Lanes x) {
  return {_mm512_castps_si512(x.v)};
}
inline Lanes from_bits(IntLanes x) {
  return {_mm512_castsi512_ps(x.v)};
}
// To nearest even; INT32_MIN where the value does not fit.
inline IntLanes to_int(Lanes x) {
  return {_mm512_cvtps_epi32(x.v)};
}
inline Lanes from_int(IntLanes x) {
  return {_mm512_cvtepi32_ps(x.v)};
}

// 16-bit storage. Conversions to 16 bits round to nearest even; NaN stays NaN.
inline Lanes load_f16(const std::uint16_t* from) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)))};
}
inline Lanes broadcast_f16(std::uint16_t x) {
  return {_mm512_cvtph_ps(_mm256_set1_epi16(static_cast<short>(x)))};
}
inline void store_f16(std::uint16_t* to, Lanes x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                      _mm512_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
// 16 unsigned 16-bit words, widened.
inline IntLanes load_u16(const std::uint16_t* from) {
  return {_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)))};
}
// 16 bytes, widened.
inline IntLanes load_u8(const std::uint8_t* from) {
  return {_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)))};
}
// 16 numbers of F8_E4M3 that are not NaN, scaled by 2^-8: then they are half floats with the same bits after the sign.
inline Lanes load_e4m3_scaled(const std::uint8_t* from) {
  const __m256i words = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  const __m256i halves = _mm256_and_si256(_mm256_slli_epi16(words, 7), _mm256_set1_epi16(static_cast<short>(0xBF80)));
  return {_mm512_cvtph_ps(halves)};
}
// 16 signed bytes, widened.
inline IntLanes load_i8(const std::int8_t* from) {
  return {_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)))};
}
// 16 pairs of bytes, each byte widened to a signed half of a lane.
inline IntLanes load_i8_pairs(const std::int8_t (&from)[16][2]) {
  return {_mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)))};
}
// The lower 16 bits of each lane.
inline void store_u16(std::uint16_t* to, IntLanes x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi32_epi16(x.v));
}

// The lower 8 bits of each lane.
inline void store_i8(std::int8_t* to, IntLanes x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(x.v));
}

inline float sum(Lanes x) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(x.v), _mm512_extractf32x8_ps(x.v, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
inline float max_of(Lanes x) {
  const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(x.v), _mm512_extractf32x8_ps(x.v, 1));
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
inline std::int32_t max_of(IntLanes x) {
  return _mm512_reduce_max_epi32(x.v);
}
// Wrapping, as integer sums are.
inline std::int32_t sum(IntLanes x) {
  return _mm512_reduce_add_epi32(x.v);
}

// Lane i gets lane i ^ distance; 1, 2, 4 or 8.
template <int distance>
inline Lanes swap_lanes(Lanes x) {
  if constexpr (distance == 1) return {_mm512_permute_ps(x.v, 0b10'11'00'01)};
  if constexpr (distance == 2) return {_mm512_permute_ps(x.v, 0b01'00'11'10)};
  if constexpr (distance == 4) return {_mm512_shuffle_f32x4(x.v, x.v, 0b10'11'00'01)};
  if constexpr (distance == 8) return {_mm512_shuffle_f32x4(x.v, x.v, 0b01'00'11'10)};
}
// table[index], indices 0 to 15.
inline Lanes lookup(const float (&table)[16], IntLanes index) {
  return {_mm512_permutexvar_ps(index.v, _mm512_loadu_ps(table))};
}
// table[byte] for each byte, 0 to 15, of the lanes.
inline IntLanes lookup_bytes(const std::uint8_t (&table)[16], IntLanes bytes) {
  const __m128i levels = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
  return {_mm512_shuffle_epi8(_mm512_broadcast_i32x4(levels), bytes.v)};
}

}  // namespace
}  // namespace imp::cpu
