// Q8_0 weights by quantized activations, with AVX-512 VNNI instructions.
#include <immintrin.h>

#include "backend/cpu/gemm/kernels.h"
#include "backend/cpu/gemm/q8_0_blocks.h"
#include "backend/cpu/lanes.h"

namespace imp::cpu {
namespace {

// Six rows by two panels: 12 integer and 12 float sums, two weight vectors and one broadcast in 32 registers.
constexpr int kTileRows = 6;
// A single row waits for memory alone. 8 KiB is about what one core's stream covers during one access.
constexpr std::ptrdiff_t kAheadBytes = 8192;

// Whether a tile is the first to read its panels, which then come from memory.
enum class Reading { first, again };

void prefetch_block(const PanelBlockQ8_0* block) {
  const char* const ahead = reinterpret_cast<const char*>(block) + kAheadBytes;
#pragma GCC unroll 9
  for (std::size_t line = 0; line < sizeof(PanelBlockQ8_0); line += 64) _mm_prefetch(ahead + line, _MM_HINT_T0);
}

template <int T, int P, Reading reading>
void multiply_tile(const PanelBlockQ8_0* weights, std::int64_t n_blocks, const GemmArgs& args, int row, std::int64_t n) {
  const ActivationBlock* x[T];
  __m512 sums[T][P];
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
    x[t] = reinterpret_cast<const ActivationBlock*>(args.activations + (row + t) * args.activation_stride);
#pragma GCC unroll 2
    for (int p = 0; p < P; ++p) sums[t][p] = _mm512_setzero_ps();
  }
  for (std::int64_t b = 0; b < n_blocks; ++b) {
    const PanelBlockQ8_0* block[P];
    __m512i dots[T][P];
#pragma GCC unroll 2
    for (int p = 0; p < P; ++p) {
      block[p] = weights + p * n_blocks + b;
      if constexpr (reading == Reading::first) prefetch_block(block[p]);
    }
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
#pragma GCC unroll 2
      for (int p = 0; p < P; ++p) dots[t][p] = _mm512_set1_epi32(x[t][b].bias);
    }
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
      __m512i codes[P];
#pragma GCC unroll 2
      for (int p = 0; p < P; ++p) codes[p] = _mm512_loadu_si512(block[p]->codes[j]);
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t) {
        std::int32_t four;
        __builtin_memcpy(&four, x[t][b].codes + 4 * j, sizeof four);
        const __m512i activation = _mm512_set1_epi32(four);
#pragma GCC unroll 2
        for (int p = 0; p < P; ++p) dots[t][p] = _mm512_dpbusd_epi32(dots[t][p], codes[p], activation);
      }
    }
#pragma GCC unroll 2
    for (int p = 0; p < P; ++p) {
      const __m512 scales = load_f16(block[p]->scales).v;
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t) {
        sums[t][p] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[t][p]),
                                     _mm512_mul_ps(scales, _mm512_set1_ps(x[t][b].scale)), sums[t][p]);
      }
    }
  }
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
#pragma GCC unroll 2
    for (int p = 0; p < P; ++p) {
      store_up_to(args.out + (row + t) * args.out_stride + n + p * kLanes, Lanes{sums[t][p]},
                  static_cast<int>(args.n_end - n) - p * kLanes);
    }
  }
}

// Calls the tile of `rows` rows, 1 to T.
template <int T, int P, Reading reading>
void dispatch_tile(int rows, const PanelBlockQ8_0* weights, std::int64_t n_blocks, const GemmArgs& args, int row,
                   std::int64_t n) {
  if constexpr (T > 1) {
    if (rows < T) return dispatch_tile<T - 1, P, reading>(rows, weights, n_blocks, args, row, n);
  }
  multiply_tile<T, P, reading>(weights, n_blocks, args, row, n);
}

// All rows by P panels, in the fewest tiles, as even as can be.
template <int P>
void multiply_panels(const PanelBlockQ8_0* weights, std::int64_t n_blocks, const GemmArgs& args, std::int64_t n) {
  const int n_tiles = (args.m + kTileRows - 1) / kTileRows;
  for (int tile = 0, row = 0; tile < n_tiles; ++tile) {
    const int rows = (args.m - row) / (n_tiles - tile);
    if (tile == 0) {
      dispatch_tile<kTileRows, P, Reading::first>(rows, weights, n_blocks, args, row, n);
    } else {
      dispatch_tile<kTileRows, P, Reading::again>(rows, weights, n_blocks, args, row, n);
    }
    row += rows;
  }
}

}  // namespace

void run_q8_0_avx512vnni(const GemmArgs& args) {
  const std::int64_t n_blocks = args.k / 32;
  const auto* const weight = reinterpret_cast<const PanelBlockQ8_0*>(args.weight);
  for (std::int64_t n = args.n_begin; n < args.n_end;) {
    const PanelBlockQ8_0* const panel = weight + n / kLanes * n_blocks;
    // A single row walks one panel at a time: one sequential stream is read fastest.
    const bool pair = args.m > 1 && args.n_end - n > kLanes;
    if (pair) {
      multiply_panels<2>(panel, n_blocks, args, n);
    } else {
      multiply_panels<1>(panel, n_blocks, args, n);
    }
    n += pair ? 2 * kLanes : kLanes;
  }
}

}  // namespace imp::cpu
