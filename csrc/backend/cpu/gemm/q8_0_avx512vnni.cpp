// Q8_0 weights by quantized activations, with AVX-512 VNNI instructions.
#include <immintrin.h>

#include "backend/cpu/gemm/q8_0_tile.h"
#include "backend/cpu/lanes.h"

namespace imp::cpu {
namespace {

// Each row has an integer and a float sum in registers; 8 rows keep enough dot products under way, and more would not
// be faster.
constexpr int kTileRows = 8;

// About 8 KiB: what one core's stream covers during one access to memory.
constexpr int kAheadBlocks = 15;

void prefetch(const PanelBlockQ8_0* block) {
#pragma GCC unroll 9
  for (std::size_t line = 0; line < sizeof *block; line += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(block) + line, _MM_HINT_T0);
  }
}

template <int T, Reading reading>
void multiply_tile(const Tile& tile) {
  const ActivationBlock* x[T];
  __m512 sums[T];
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
    x[t] = reinterpret_cast<const ActivationBlock*>(tile.activations + t * tile.activation_stride);
    sums[t] = _mm512_setzero_ps();
  }
  for (std::int64_t b = 0; b < tile.n_blocks; ++b) {
    const PanelBlockQ8_0& weights = tile.weights[b];
    if constexpr (reading == Reading::first) prefetch(&weights + kAheadBlocks);
    __m512i dots[T];
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) dots[t] = _mm512_set1_epi32(x[t][b].bias);
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
      const __m512i codes = _mm512_loadu_si512(weights.codes[j]);
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t) {
        std::int32_t four;
        __builtin_memcpy(&four, x[t][b].codes + 4 * j, sizeof four);
        dots[t] = _mm512_dpbusd_epi32(dots[t], codes, _mm512_set1_epi32(four));
      }
    }
    const __m512 scales = load_f16(weights.scales).v;
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
      const __m512 scale = _mm512_mul_ps(scales, _mm512_set1_ps(x[t][b].scale));
      sums[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[t]), scale, sums[t]);
    }
  }
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) store_up_to(tile.out + t * tile.out_stride, Lanes{sums[t]}, tile.columns);
}

}  // namespace
}  // namespace imp::cpu

#include "backend/cpu/gemm/q8_0_panels.inl"

namespace imp::cpu {

void run_q8_0_avx512vnni(const GemmArgs& args) {
  multiply(args);
}

}  // namespace imp::cpu
