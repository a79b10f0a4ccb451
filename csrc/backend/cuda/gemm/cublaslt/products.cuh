// Around cuBLASLt: decodes tile16 weights to rows of 16-bit elements, and finishes the products from its sums.
#pragma once

#include "backend/cuda/gemm/float8_steps.cuh"
#include "backend/cuda/gemm/tile_work.cuh"
#include "backend/cuda/gemm/weight_steps.cuh"

namespace imp::cuda {

struct CublasLtKernel {
  static constexpr int kWarps = 8, kThreads = kWarps * kWarpSize;
  static constexpr int kRowBytes = kStepElements * 2;  // of a step
  static constexpr int kRowChunks = kRowBytes / kLaneBytes;
  static constexpr int kWarpBytes = kTileRows * kRowBytes;
};

// The place of a 16-byte chunk of a row in a warp's staging buffer. The XOR avoids bank conflicts for writers of words
// of eight rows and for readers of four chunks.
constexpr int staged_chunk(int row, int chunk) {
  return row * CublasLtKernel::kRowBytes + (chunk ^ row % CublasLtKernel::kRowChunks) * kLaneBytes;
}

// One warp per tile, one block for several tiles along k. Rows of `out` are contiguous, n_tiles tiles long. Their
// elements are in the order of the fragments, as in prepared activations. A row's unit holds its scale.
template <DType kType>
__global__ void __launch_bounds__(CublasLtKernel::kThreads)
    cublaslt_weights_kernel(const std::byte* tiles, int n_tiles, std::byte* out, float* units) {
  using Shape = CublasLtKernel;
  __shared__ arch::Vec16 staged_by_all[Shape::kWarps][Shape::kWarpBytes / kLaneBytes];
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize, warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int at = static_cast<int>(blockIdx.x) * Shape::kWarps + warp;  // of the strip's tiles
  if (at >= n_tiles) return;
  const std::size_t strip = blockIdx.y, n = static_cast<std::size_t>(n_tiles);
  const std::byte* const first = tiles + strip * n * Tile<kType>::kBytes;
  const std::byte* const tile = first + static_cast<std::size_t>(at) * Tile<kType>::kBytes;
  const std::size_t row_bytes = n * kTileElements * 2;
  std::byte* const to = out + strip * kTileRows * row_bytes + static_cast<std::size_t>(at) * kTileElements * 2;
  auto* const staged = reinterpret_cast<std::byte*>(staged_by_all[warp]);

  WeightStep<kType> next;
  next.begin(first, n_tiles, lane);
  if (at == 0 && lane % 4 == 0) {
    float ones[1][4] = {{1, 1, 1, 1}};  // factors of a warp's sums
    next.finish(ones);
    units[strip * kTileRows + static_cast<unsigned>(lane) / 4] = ones[0][0];
    units[strip * kTileRows + static_cast<unsigned>(lane) / 4 + 8] = ones[0][2];
  }
  next.load(tile, 0, lane);
  IMP_ROLLED
  for (int step = 0; step < kTileSteps; ++step) {
    const WeightStep<kType> weights = next;
    if (step + 1 < kTileSteps) next.load(tile, step + 1, lane);
    ScaleWords words;
    weights.make_words(step, lane, words);
    IMP_UNROLL
    for (int product = 0; product < kStepProducts; ++product) {
      Fragment a;
      weights.decode(product, step, words, a);
      IMP_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int place = staged_chunk(lane / 4 + i % 2 * 8, product * 2 + i / 2) + lane % 4 * 4;
        *reinterpret_cast<std::uint32_t*>(staged + place) = a[i];
      }
    }
    __syncwarp();
    IMP_UNROLL
    for (int i = 0; i < kTileRows * Shape::kRowChunks / kWarpSize; ++i) {
      const int row = (i * kWarpSize + lane) / Shape::kRowChunks, chunk = lane % Shape::kRowChunks;
      const std::byte* const from = staged + staged_chunk(row, chunk);
      *reinterpret_cast<arch::Vec16*>(to + static_cast<std::size_t>(row) * row_bytes + step * Shape::kRowBytes +
                                      chunk * kLaneBytes) = *reinterpret_cast<const arch::Vec16*>(from);
    }
    __syncwarp();
  }
}

// Finishes sums [m, stride].
struct FinishWork {
  const float* sums = nullptr;
  const float* up = nullptr;                          // the product that the gate multiplies, if the launch fuses them
  const float *units = nullptr, *up_units = nullptr;  // [stride]
  std::int64_t stride = 0;
  GemmLaunchTerm term, up_term;  // from the strip's first output on
  int n = 0;                     // outputs of the strip
  GemmFusion fusion = GemmFusion::none;
  const std::byte* x = nullptr;
  std::ptrdiff_t x_stride = 0;
  int factor_offset = 0;  // in a row of x; 0: it has none
};

static __device__ __forceinline__ float finished(float sum, float factor, const float* bias, int n) {
  const float value = sum * factor;
  return bias != nullptr ? value + bias[n] : value;
}

// One thread per output.
static __global__ void __launch_bounds__(CublasLtKernel::kThreads)
    finish_products_kernel(const __grid_constant__ FinishWork work) {
  const int n = static_cast<int>(blockIdx.x) * CublasLtKernel::kThreads + static_cast<int>(threadIdx.x);
  const std::ptrdiff_t row = blockIdx.y, at = row * work.stride + n;
  if (n >= work.n) return;
  const float factor = work.factor_offset != 0
                           ? *reinterpret_cast<const float*>(work.x + row * work.x_stride + work.factor_offset)
                           : 1.0F;
  float value = finished(work.sums[at] * work.units[n], factor, work.term.bias, n);
  if (work.fusion != GemmFusion::none) {
    value = gate_of(work.fusion, value) * finished(work.up[at] * work.up_units[n], factor, work.up_term.bias, n);
  }
  work.term.out[row * work.term.out_stride + n] = value;
}

}  // namespace imp::cuda
