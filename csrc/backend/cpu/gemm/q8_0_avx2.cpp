// Q8_0 weights by quantized activations, with AVX2 instructions.
#include <immintrin.h>

#include "backend/cpu/gemm/q8_0_tile.h"
#include "backend/cpu/lanes.h"

namespace imp::cpu {
namespace {

// The integer sums of 4 rows, two weight vectors and their magnitudes, and three temporaries fill 16 registers; the
// float sums are touched once in 32 elements and may live in memory.
constexpr int kTileRows = 4;

// Adds the products of 4 elements of 8 weight rows to their sums. maddubs multiplies unsigned by signed, so the
// weight's sign moves to the activation; exact, as |weight| <= 128 and |activation| <= 127 make a pair at most 32512.
inline __m256i dot_add(__m256i sums, __m256i weights, __m256i magnitudes, __m256i activation) {
  const __m256i pairs = _mm256_maddubs_epi16(magnitudes, _mm256_sign_epi8(activation, weights));
  return _mm256_add_epi32(sums, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

// Codes as they were before 128 was added.
inline __m256i load_codes(const std::uint8_t* codes) {
  return _mm256_xor_si256(_mm256_load_si256(reinterpret_cast<const __m256i*>(codes)), _mm256_set1_epi8(-128));
}

template <int T, Reading>
void multiply_tile(const Tile& tile) {
  const ActivationBlock* x[T];
  Lanes sums[T];
#pragma GCC unroll 4
  for (int t = 0; t < T; ++t) {
    x[t] = reinterpret_cast<const ActivationBlock*>(tile.activations + t * tile.activation_stride);
    sums[t] = zero();
  }
  for (std::int64_t b = 0; b < tile.n_blocks; ++b) {
    const PanelBlockQ8_0& weights = tile.weights[b];
    __m256i low[T], high[T];  // dots of rows 0 to 7 and 8 to 15
#pragma GCC unroll 4
    for (int t = 0; t < T; ++t) low[t] = high[t] = _mm256_setzero_si256();
    for (int j = 0; j < 8; ++j) {
      const __m256i first = load_codes(weights.codes[j][0]), second = load_codes(weights.codes[j][8]);
      const __m256i first_magnitudes = _mm256_abs_epi8(first), second_magnitudes = _mm256_abs_epi8(second);
#pragma GCC unroll 4
      for (int t = 0; t < T; ++t) {
        std::int32_t four;
        __builtin_memcpy(&four, x[t][b].codes + 4 * j, sizeof four);
        const __m256i activation = _mm256_set1_epi32(four);
        low[t] = dot_add(low[t], first, first_magnitudes, activation);
        high[t] = dot_add(high[t], second, second_magnitudes, activation);
      }
    }
    const Lanes scales = load_f16(weights.scales);
#pragma GCC unroll 4
    for (int t = 0; t < T; ++t) {
      sums[t] = fma(from_int(IntLanes{low[t], high[t]}), scales * broadcast(x[t][b].scale), sums[t]);
    }
  }
#pragma GCC unroll 4
  for (int t = 0; t < T; ++t) store_up_to(tile.out + t * tile.out_stride, sums[t], tile.columns);
}

}  // namespace
}  // namespace imp::cpu

#include "backend/cpu/gemm/q8_0_panels.inl"

namespace imp::cpu {

void run_q8_0_avx2(const GemmArgs& args) {
  multiply(args);
}

}  // namespace imp::cpu
