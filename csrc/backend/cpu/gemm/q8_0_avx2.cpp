// Q8_0 weights by quantized activations, with AVX2 instructions.
#include <immintrin.h>

#include "backend/cpu/gemm/kernels.h"
#include "backend/cpu/gemm/q8_0_blocks.h"
#include "backend/cpu/lanes.h"

namespace imp::cpu {
namespace {

// Rows of activations per tile: their integer sums, two weight vectors and three temporaries fill 16 registers; the
// float sums are touched once in 32 elements and may live in memory.
constexpr int kTileRows = 4;

struct Half {
  __m256i sums;  // of 8 weight rows

  // Adds the products of 4 elements. maddubs multiplies unsigned by signed, so the weight's sign moves to the
  // activation; exact, as |weight| <= 128 and |activation| <= 127 make a pair at most 32512.
  void add(__m256i weight, __m256i magnitude, __m256i activation) {
    const __m256i pairs = _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(activation, weight));
    sums = _mm256_add_epi32(sums, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  }
};

__m256i signed_codes(const std::uint8_t* codes) {
  return _mm256_xor_si256(_mm256_load_si256(reinterpret_cast<const __m256i*>(codes)), _mm256_set1_epi8(-128));
}

template <int T>
void multiply_tile(const PanelBlockQ8_0* weights, std::int64_t n_blocks, const GemmArgs& args, int row, std::int64_t n) {
  const ActivationBlock* x[T];
  Lanes sums[T];
#pragma GCC unroll 4
  for (int t = 0; t < T; ++t) {
    x[t] = reinterpret_cast<const ActivationBlock*>(args.activations + (row + t) * args.activation_stride);
    sums[t] = zero();
  }
  for (std::int64_t b = 0; b < n_blocks; ++b) {
    const PanelBlockQ8_0& weight = weights[b];
    Half low[T], high[T];
#pragma GCC unroll 4
    for (int t = 0; t < T; ++t) low[t].sums = high[t].sums = _mm256_setzero_si256();
    for (int j = 0; j < 8; ++j) {
      const __m256i first = signed_codes(weight.codes[j][0]), second = signed_codes(weight.codes[j][8]);
      const __m256i first_magnitude = _mm256_abs_epi8(first), second_magnitude = _mm256_abs_epi8(second);
#pragma GCC unroll 4
      for (int t = 0; t < T; ++t) {
        std::int32_t four;
        __builtin_memcpy(&four, x[t][b].codes + 4 * j, sizeof four);
        const __m256i activation = _mm256_set1_epi32(four);
        low[t].add(first, first_magnitude, activation);
        high[t].add(second, second_magnitude, activation);
      }
    }
    const Lanes scales = load_f16(weight.scales);
#pragma GCC unroll 4
    for (int t = 0; t < T; ++t) {
      const IntLanes dot = {low[t].sums, high[t].sums};
      sums[t] = fma(from_int(dot), scales * broadcast(x[t][b].scale), sums[t]);
    }
  }
#pragma GCC unroll 4
  for (int t = 0; t < T; ++t) {
    store_up_to(args.out + (row + t) * args.out_stride + n, sums[t], static_cast<int>(args.n_end - n));
  }
}

}  // namespace

void run_q8_0_avx2(const GemmArgs& args) {
  const std::int64_t n_blocks = args.k / 32;
  const auto* const weight = reinterpret_cast<const PanelBlockQ8_0*>(args.weight);
  for (std::int64_t n = args.n_begin; n < args.n_end; n += kLanes) {
    const PanelBlockQ8_0* const panel = weight + n / kLanes * n_blocks;
    const int n_tiles = (args.m + kTileRows - 1) / kTileRows;
    for (int tile = 0, row = 0; tile < n_tiles; ++tile) {
      const int rows = (args.m - row) / (n_tiles - tile);
      if (rows == 1) multiply_tile<1>(panel, n_blocks, args, row, n);
      if (rows == 2) multiply_tile<2>(panel, n_blocks, args, row, n);
      if (rows == 3) multiply_tile<3>(panel, n_blocks, args, row, n);
      if (rows == 4) multiply_tile<4>(panel, n_blocks, args, row, n);
      row += rows;
    }
  }
}

}  // namespace imp::cpu
