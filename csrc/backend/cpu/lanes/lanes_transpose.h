// Sixteen rows of sixteen words, transposed in registers: x[i][j] becomes x[j][i].
#pragma once

#include "backend/cpu/lanes/lanes.h"

namespace imp::cpu {
namespace {

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
inline void transpose(IntLanes (&x)[kLanes]) {
  // First 4 × 4 squares of words, then an exchange of the squares.
  __m512i square[kLanes];
  for (int i = 0; i < kLanes; i += 4) {
    const __m512i even_low = _mm512_unpacklo_epi32(x[i].v, x[i + 1].v);
    const __m512i even_high = _mm512_unpackhi_epi32(x[i].v, x[i + 1].v);
    const __m512i odd_low = _mm512_unpacklo_epi32(x[i + 2].v, x[i + 3].v);
    const __m512i odd_high = _mm512_unpackhi_epi32(x[i + 2].v, x[i + 3].v);
    square[i] = _mm512_unpacklo_epi64(even_low, odd_low);
    square[i + 1] = _mm512_unpackhi_epi64(even_low, odd_low);
    square[i + 2] = _mm512_unpacklo_epi64(even_high, odd_high);
    square[i + 3] = _mm512_unpackhi_epi64(even_high, odd_high);
  }
  for (int i = 0; i < 4; ++i) {
    const __m512i even_up = _mm512_shuffle_i32x4(square[i], square[i + 4], 0x88);
    const __m512i even_down = _mm512_shuffle_i32x4(square[i + 8], square[i + 12], 0x88);
    const __m512i odd_up = _mm512_shuffle_i32x4(square[i], square[i + 4], 0xDD);
    const __m512i odd_down = _mm512_shuffle_i32x4(square[i + 8], square[i + 12], 0xDD);
    x[i].v = _mm512_shuffle_i32x4(even_up, even_down, 0x88);
    x[i + 4].v = _mm512_shuffle_i32x4(odd_up, odd_down, 0x88);
    x[i + 8].v = _mm512_shuffle_i32x4(even_up, even_down, 0xDD);
    x[i + 12].v = _mm512_shuffle_i32x4(odd_up, odd_down, 0xDD);
  }
}
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
// Eight rows of eight.
inline void transpose(const __m256i (&rows)[8], __m256i (&columns)[8]) {
  __m256i square[8];
  for (int i = 0; i < 8; i += 4) {
    const __m256i even_low = _mm256_unpacklo_epi32(rows[i], rows[i + 1]);
    const __m256i even_high = _mm256_unpackhi_epi32(rows[i], rows[i + 1]);
    const __m256i odd_low = _mm256_unpacklo_epi32(rows[i + 2], rows[i + 3]);
    const __m256i odd_high = _mm256_unpackhi_epi32(rows[i + 2], rows[i + 3]);
    square[i] = _mm256_unpacklo_epi64(even_low, odd_low);
    square[i + 1] = _mm256_unpackhi_epi64(even_low, odd_low);
    square[i + 2] = _mm256_unpacklo_epi64(even_high, odd_high);
    square[i + 3] = _mm256_unpackhi_epi64(even_high, odd_high);
  }
  for (int i = 0; i < 4; ++i) {
    columns[i] = _mm256_permute2x128_si256(square[i], square[i + 4], 0x20);
    columns[i + 4] = _mm256_permute2x128_si256(square[i], square[i + 4], 0x31);
  }
}

inline void transpose(IntLanes (&x)[kLanes]) {
  __m256i rows[4][8], columns[4][8];  // upper left, upper right, lower left, lower right
  for (int i = 0; i < 8; ++i) {
    rows[0][i] = x[i].lo;
    rows[1][i] = x[i].hi;
    rows[2][i] = x[i + 8].lo;
    rows[3][i] = x[i + 8].hi;
  }
  for (int i = 0; i < 4; ++i) transpose(rows[i], columns[i]);
  for (int i = 0; i < 8; ++i) {
    x[i] = {columns[0][i], columns[2][i]};
    x[i + 8] = {columns[1][i], columns[3][i]};
  }
}
#else
inline void transpose(IntLanes (&x)[kLanes]) {
  std::int32_t rows[kLanes][kLanes];
  for (int i = 0; i < kLanes; ++i) store_int(rows[i], x[i]);
  for (int i = 0; i < kLanes; ++i) {
    std::int32_t column[kLanes];
    for (int j = 0; j < kLanes; ++j) column[j] = rows[j][i];
    x[i] = load_int(column);
  }
}
#endif

}  // namespace
}  // namespace imp::cpu
