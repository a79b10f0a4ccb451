// Transposes sixteen rows of floats into a panel.
#include <cstddef>
#include <cstdint>

#include "backend/cpu/lanes/lanes.h"

namespace imp::cpu {
namespace {

#if defined(__AVX2__)
// Transposes eight rows of eight: [i][r] <- [r][i].
void interleave_8x8(const float* rows, std::ptrdiff_t stride, float* panel) {
  __m256 r[8], pair[8], quad[8];
  for (int i = 0; i < 8; ++i) r[i] = _mm256_loadu_ps(rows + i * stride);
  for (int i = 0; i < 8; i += 2) {
    pair[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    pair[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    quad[i] = _mm256_shuffle_ps(pair[i], pair[i + 2], 0x44);
    quad[i + 1] = _mm256_shuffle_ps(pair[i], pair[i + 2], 0xEE);
    quad[i + 2] = _mm256_shuffle_ps(pair[i + 1], pair[i + 3], 0x44);
    quad[i + 3] = _mm256_shuffle_ps(pair[i + 1], pair[i + 3], 0xEE);
  }
  for (int i = 0; i < 4; ++i) {
    _mm256_storeu_ps(panel + 16 * i, _mm256_permute2f128_ps(quad[i], quad[i + 4], 0x20));
    _mm256_storeu_ps(panel + 16 * (i + 4), _mm256_permute2f128_ps(quad[i], quad[i + 4], 0x31));
  }
}
#endif

void interleave(const float* rows, std::ptrdiff_t stride, std::int64_t k, float* panel) {
  std::int64_t i = 0;
#if defined(__AVX2__)
  for (; i + 8 <= k; i += 8) {
    interleave_8x8(rows + i, stride, panel + 16 * i);
    interleave_8x8(rows + 8 * stride + i, stride, panel + 16 * i + 8);
  }
#endif
  for (; i < k; ++i) {
    for (int row = 0; row < 16; ++row) panel[16 * i + row] = rows[row * stride + i];
  }
}

}  // namespace
}  // namespace imp::cpu
