// The work of a launch on tiles: a block computes 16 columns of some rows of out, its warps slices of k (sliced-K).
#pragma once

#include "backend/cuda/device/arch.cuh"
#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/device/math.cuh"
#include "backend/cuda/device/warp.cuh"
#include "backend/cuda/gemm/tiles.h"
#include "backend/gemm_launch.h"
#include "base/ceil_div.h"

namespace imp::cuda {

constexpr int kMaxSlices = 8;  // of k, one per warp
constexpr int kTileThreads = kMaxSlices * kWarpSize;

// GemmLaunch as blocks read it.
struct TileWork {
  GemmLaunchTerm terms[GemmLaunch::kMaxTerms];
  int n_terms = 0;
  GemmFusion fusion = GemmFusion::none;
  const std::byte* x = nullptr;
  std::ptrdiff_t x_stride = 0;
  int m = 0;
  int n_tiles = 0;  // along k
  int n_experts = 0;
  const std::int32_t* begins = nullptr;
  const std::int32_t* sources = nullptr;
};

constexpr int smaller_of(int a, int b) {
  return a < b ? a : b;
}

// ---- a block's work

// A slice's part of a strip's tiles. It depends only on k, so that no sum depends on m.
struct TileRange {
  int begin, end;
};
constexpr int n_slices_of(int n_tiles) {
  return smaller_of(n_tiles, kMaxSlices);
}
constexpr TileRange slice_of(int n_tiles, int slice) {
  const int n_slices = n_slices_of(n_tiles);
  return {slice * n_tiles / n_slices, (slice + 1) * n_tiles / n_slices};
}

// The number of passes over at most batch_rows of the m rows of out, for any distribution of rows over experts.
constexpr int n_passes_of(int m, int n_experts, int batch_rows) {
  const int whole = ceil_div(m, batch_rows);
  if (n_experts == 0) return whole;
  return smaller_of(whole + n_experts, m);
}

// The part of out that a block computes: of one term, 16 columns from 16 · strip on by rows [first, end).
struct OutputTile {
  int term, strip, expert, first, end;
};

// Finds the expert of a pass and its rows; false if there are fewer passes. Called by whole warps.
static __device__ __forceinline__ bool find_expert_rows(const TileWork& work, int pass, int batch_rows,
                                                        OutputTile* output) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  int n_before = 0;  // passes of earlier experts
  for (int base = 0; base < work.n_experts; base += kWarpSize) {
    const int expert = base + lane;
    const int first = expert < work.n_experts ? work.begins[expert] : 0;
    const int end = expert < work.n_experts ? work.begins[expert + 1] : 0;
    const int n_passes = ceil_div(end - first, batch_rows);
    int n_until = n_passes;  // passes up to and including this lane's expert
    for (int delta = 1; delta < kWarpSize; delta *= 2) {
      const int below = __shfl_up_sync(kAllLanes, n_until, static_cast<unsigned>(delta));
      if (lane >= delta) n_until += below;
    }
    const int number = pass - n_before - (n_until - n_passes);  // index of the pass in the expert
    const unsigned found = __ballot_sync(kAllLanes, number >= 0 && number < n_passes);
    if (found != 0) {
      const int owner = __ffs(static_cast<int>(found)) - 1;
      output->expert = base + owner;
      output->first = __shfl_sync(kAllLanes, first + number * batch_rows, owner);
      output->end = smaller_of(output->first + batch_rows, __shfl_sync(kAllLanes, end, owner));
      return true;
    }
    n_before += __shfl_sync(kAllLanes, n_until, kWarpSize - 1);
  }
  return false;
}

// False if the block has no work. The same for all threads.
static __device__ __forceinline__ bool find_output_tile(const TileWork& work, int batch_rows, OutputTile* output) {
  output->term = 0;
  output->strip = static_cast<int>(blockIdx.y);
  while (output->term + 1 < work.n_terms && output->strip >= strips_of(work.terms[output->term].n)) {
    output->strip -= static_cast<int>(strips_of(work.terms[output->term++].n));
  }
  const int pass = static_cast<int>(blockIdx.x);
  if (work.n_experts > 0) return find_expert_rows(work, pass, batch_rows, output);
  output->expert = 0;
  output->first = pass * batch_rows;
  output->end = smaller_of(output->first + batch_rows, work.m);
  return true;
}

// The strip's first tile; null if the weight belongs to another kernel.
static __device__ __forceinline__ const std::byte* find_strip(const TileWork& work, const OutputTile& output, int term,
                                                              int tile_bytes) {
  const GemmLaunchTerm& of = work.terms[term];
  const std::byte* const weight = of.experts != nullptr ? of.experts[output.expert] : of.weight;
  if (weight == nullptr) return nullptr;
  return weight + static_cast<std::size_t>(output.strip) * static_cast<std::size_t>(work.n_tiles) * tile_bytes;
}

// The row of x for a row of the output tile. Rows beyond the tile repeat its last.
static __device__ __forceinline__ const std::byte* find_x(const TileWork& work, const OutputTile& output,
                                                          int batch_row) {
  const int row = smaller_of(output.first + batch_row, output.end - 1);
  return work.x + (work.sources != nullptr ? work.sources[row] : row) * work.x_stride;
}

// ---- the sum over the slices, and the epilogue

static __device__ __forceinline__ float gate_of(GemmFusion fusion, float value) {
  return fusion == GemmFusion::silu ? silu_of(value) : gelu_tanh_of(value);
}

constexpr int kSumStride = kTileRows + 4;  // floats from one batch row to the next: no bank conflicts for writers

// In shared memory: by product, slice, batch row and row of the strip.
constexpr int n_sums(int n_products, int n_slices, int batch_rows) {
  return n_products * n_slices * batch_rows * kSumStride;
}
static __device__ __forceinline__ float* sums_of(float* sums, int product, int slice, int batch_rows) {
  const int n_slices = static_cast<int>(blockDim.x) / kWarpSize;
  return sums + (product * n_slices + slice) * batch_rows * kSumStride;
}

// Multiplies by the row's factor if rows have one, and adds the bias last.
static __device__ __forceinline__ float finished_sum(float* sums, int product, int batch_rows, int batch_row, int row,
                                                     float factor, const float* bias) {
  const int n_slices = static_cast<int>(blockDim.x) / kWarpSize, at = batch_row * kSumStride + row;
  float total = sums_of(sums, product, 0, batch_rows)[at];
  for (int slice = 1; slice < n_slices; ++slice) total += sums_of(sums, product, slice, batch_rows)[at];
  total *= factor;
  return bias != nullptr ? total + *bias : total;
}

// Call after a barrier: writes the block's part of out. Rows of x with a factor have it at factor_offset, which is
// otherwise 0.
template <int kBatchRows>
__device__ __forceinline__ void write_out(const TileWork& work, const OutputTile& output, float* sums,
                                          int factor_offset) {
  const GemmLaunchTerm& term = work.terms[output.term];
  for (int i = static_cast<int>(threadIdx.x); i < kBatchRows * kTileRows; i += static_cast<int>(blockDim.x)) {
    const int batch_row = i / kTileRows, row = i % kTileRows, p = output.first + batch_row;
    const std::int64_t n = output.strip * kTileRows + row;
    if (p >= output.end || n >= term.n) continue;
    const float factor =
        factor_offset != 0 ? *reinterpret_cast<const float*>(find_x(work, output, batch_row) + factor_offset) : 1.0F;
    const auto sum = [&](int product, const GemmLaunchTerm& of) {
      return finished_sum(sums, product, kBatchRows, batch_row, row, factor,
                          of.bias != nullptr ? of.bias + n : nullptr);
    };
    float value = sum(0, term);
    if (work.fusion != GemmFusion::none) {
      value = gate_of(work.fusion, value) * sum(1, work.terms[1]);
    }
    term.out[p * term.out_stride + n] = value;
  }
}

// ---- host code

inline TileWork tile_work_of(const GemmLaunch& launch) {
  TileWork work;
  for (const GemmLaunchTerm& term : launch.terms) work.terms[work.n_terms++] = term;
  work.fusion = launch.fusion;
  if (launch.fusion != GemmFusion::none) work.n_terms = 1;  // the second term is fused into the first
  work.x = launch.x;
  work.x_stride = launch.x_stride;
  work.m = launch.m;
  work.n_tiles = static_cast<int>(tiles_along(launch.k));
  work.n_experts = launch.n_experts;
  work.begins = launch.begins;
  work.sources = launch.sources;
  return work;
}
inline int n_products_of(const TileWork& work) {
  return work.fusion == GemmFusion::none ? 1 : 2;
}

// For a kernel whose blocks compute batch_rows rows of out and need this shared memory in addition to the sums.
inline LaunchShape shape_of(const TileWork& work, int batch_rows, std::size_t shared_bytes) {
  const int n_slices = n_slices_of(work.n_tiles);
  std::int64_t n_strips = 0;
  for (int i = 0; i < work.n_terms; ++i) n_strips += strips_of(work.terms[i].n);
  const auto sums = static_cast<std::size_t>(n_sums(n_products_of(work), n_slices, batch_rows));
  return {
      .grid = {static_cast<unsigned>(n_passes_of(work.m, work.n_experts, batch_rows)), static_cast<unsigned>(n_strips)},
      .block = static_cast<unsigned>(n_slices * kWarpSize),
      .shared_bytes = shared_bytes + sums * sizeof(float)};
}

// Rows of out per block, a power of two up to `most`: enough for the rows there are, or for experts the rows of each if
// rows are spread evenly.
inline int batch_rows_for(const TileWork& work, int least, int most) {
  const int rows = work.n_experts > 0 ? ceil_div(work.m, work.n_experts) : work.m;
  int batch_rows = least;
  while (batch_rows < rows && batch_rows < most) batch_rows *= 2;
  return batch_rows;
}

}  // namespace imp::cuda
