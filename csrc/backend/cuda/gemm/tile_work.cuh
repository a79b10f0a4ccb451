// What a launch over tiles is cut into: a block makes 16 columns of some rows of out, its warps slices of k.
#pragma once

#include "backend/cuda/device/arch.cuh"
#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/device/math.cuh"
#include "backend/cuda/device/warp.cuh"
#include "backend/cuda/gemm/tiles.h"
#include "backend/gemm_launch.h"

namespace imp::cuda {

constexpr int kMaxSlices = 8;  // of k, one for each warp
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

// ---- which block does what

// The part of a strip's tiles that belongs to a slice: of k alone, so that no sum depends on m.
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

// Passes over at most `columns` rows of out that m rows need, however many of them each expert has.
constexpr int n_passes_of(int m, int n_experts, int columns) {
  const int whole = (m + columns - 1) / columns;
  if (n_experts == 0) return whole;
  return smaller_of(whole + n_experts, m);
}

// A block's own: 16 columns of out from 16 · strip, of rows [first, end) of out.
struct TilePlace {
  int term, strip, expert, first, end;
};

// Finds the expert that the pass belongs to, and its rows; false where there are fewer passes. For whole warps.
static __device__ __forceinline__ bool find_expert_rows(const TileWork& work, int pass, int columns, TilePlace* place) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  int n_before = 0;  // passes of the experts before
  for (int base = 0; base < work.n_experts; base += kWarpSize) {
    const int expert = base + lane;
    const int first = expert < work.n_experts ? work.begins[expert] : 0;
    const int end = expert < work.n_experts ? work.begins[expert + 1] : 0;
    const int n_passes = (end - first + columns - 1) / columns;
    int n_until = n_passes;  // of this lane's expert and those before
    for (int delta = 1; delta < kWarpSize; delta *= 2) {
      const int below = __shfl_up_sync(kAllLanes, n_until, static_cast<unsigned>(delta));
      if (lane >= delta) n_until += below;
    }
    const int number = pass - n_before - (n_until - n_passes);  // of the pass among the expert's
    const unsigned found = __ballot_sync(kAllLanes, number >= 0 && number < n_passes);
    if (found != 0) {
      const int owner = __ffs(static_cast<int>(found)) - 1;
      place->expert = base + owner;
      place->first = __shfl_sync(kAllLanes, first + number * columns, owner);
      place->end = smaller_of(place->first + columns, __shfl_sync(kAllLanes, end, owner));
      return true;
    }
    n_before += __shfl_sync(kAllLanes, n_until, kWarpSize - 1);
  }
  return false;
}

// False where the block has nothing to do. The same for all threads.
static __device__ __forceinline__ bool find_place(const TileWork& work, int columns, TilePlace* place) {
  place->term = 0;
  place->strip = static_cast<int>(blockIdx.y);
  while (place->term + 1 < work.n_terms && place->strip >= strips_of(work.terms[place->term].n)) {
    place->strip -= static_cast<int>(strips_of(work.terms[place->term++].n));
  }
  const int pass = static_cast<int>(blockIdx.x);
  if (work.n_experts > 0) return find_expert_rows(work, pass, columns, place);
  place->expert = 0;
  place->first = pass * columns;
  place->end = smaller_of(place->first + columns, work.m);
  return true;
}

// The strip's first tile; null where the weight is not this kernel's.
static __device__ __forceinline__ const std::byte* find_strip(const TileWork& work, const TilePlace& place, int term,
                                                              int tile_bytes) {
  const GemmLaunchTerm& of = work.terms[term];
  const std::byte* const weight = of.experts != nullptr ? of.experts[place.expert] : of.weight;
  if (weight == nullptr) return nullptr;
  return weight + static_cast<std::size_t>(place.strip) * static_cast<std::size_t>(work.n_tiles) * tile_bytes;
}

// The row of x that a column of the block's products is of. Columns beyond the block's rows repeat the last.
static __device__ __forceinline__ const std::byte* find_x(const TileWork& work, const TilePlace& place, int column) {
  const int row = smaller_of(place.first + column, place.end - 1);
  return work.x + (work.sources != nullptr ? work.sources[row] : row) * work.x_stride;
}

// ---- the sum over the slices, and what follows it

static __device__ __forceinline__ float gate_of(GemmFusion fusion, float value) {
  return fusion == GemmFusion::silu ? silu_of(value) : gelu_tanh_of(value);
}

constexpr int kSumStride = kTileRows + 4;  // floats from one column to the next: lanes that write meet no bank twice

// In shared memory: of each product, slice, column and row of the strip.
constexpr int n_sums(int n_products, int n_slices, int columns) {
  return n_products * n_slices * columns * kSumStride;
}
static __device__ __forceinline__ float* sums_of(float* sums, int product, int slice, int columns) {
  const int n_slices = static_cast<int>(blockDim.x) / kWarpSize;
  return sums + (product * n_slices + slice) * columns * kSumStride;
}

// Multiplied by the row's factor where rows have one; the bias comes last.
static __device__ __forceinline__ float finished_sum(float* sums, int product, int columns, int column, int row,
                                                     float factor, const float* bias) {
  const int n_slices = static_cast<int>(blockDim.x) / kWarpSize, at = column * kSumStride + row;
  float total = sums_of(sums, product, 0, columns)[at];
  for (int slice = 1; slice < n_slices; ++slice) total += sums_of(sums, product, slice, columns)[at];
  total *= factor;
  return bias != nullptr ? total + *bias : total;
}

// After a barrier: writes the block's part of out. Rows of x whose elements are multiples of a factor have it at
// factor_offset, which is 0 where they have none.
template <int kColumns>
__device__ __forceinline__ void write_out(const TileWork& work, const TilePlace& place, float* sums,
                                          int factor_offset) {
  const GemmLaunchTerm& term = work.terms[place.term];
  for (int i = static_cast<int>(threadIdx.x); i < kColumns * kTileRows; i += static_cast<int>(blockDim.x)) {
    const int column = i / kTileRows, row = i % kTileRows, p = place.first + column;
    const std::int64_t n = place.strip * kTileRows + row;
    if (p >= place.end || n >= term.n) continue;
    const float factor =
        factor_offset != 0 ? *reinterpret_cast<const float*>(find_x(work, place, column) + factor_offset) : 1.0F;
    const auto sum = [&](int product, const GemmLaunchTerm& of) {
      return finished_sum(sums, product, kColumns, column, row, factor, of.bias != nullptr ? of.bias + n : nullptr);
    };
    float value = sum(0, term);
    if (work.fusion != GemmFusion::none) {
      value = gate_of(work.fusion, value) * sum(1, work.terms[1]);
    }
    term.out[p * term.out_stride + n] = value;
  }
}

// ---- the host's side

inline TileWork tile_work_of(const GemmLaunch& launch) {
  TileWork work;
  for (const GemmLaunchTerm& term : launch.terms) work.terms[work.n_terms++] = term;
  work.fusion = launch.fusion;
  if (launch.fusion != GemmFusion::none) work.n_terms = 1;  // the second goes with the first
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

// For a kernel whose blocks make `columns` rows of out and need some shared memory beside the sums.
inline LaunchShape shape_of(const TileWork& work, int columns, std::size_t shared_bytes) {
  const int n_slices = n_slices_of(work.n_tiles);
  std::int64_t n_strips = 0;
  for (int i = 0; i < work.n_terms; ++i) n_strips += strips_of(work.terms[i].n);
  const auto sums = static_cast<std::size_t>(n_sums(n_products_of(work), n_slices, columns));
  return {
      .grid = {static_cast<unsigned>(n_passes_of(work.m, work.n_experts, columns)), static_cast<unsigned>(n_strips)},
      .block = static_cast<unsigned>(n_slices * kWarpSize),
      .shared_bytes = shared_bytes + sums * sizeof(float)};
}

// Rows of out that a block is to make, of `most` at most, a power of two: those that there are, or of experts as many
// as each has if all have as many.
inline int columns_for(const TileWork& work, int least, int most) {
  const int rows = work.n_experts > 0 ? (work.m + work.n_experts - 1) / work.n_experts : work.m;
  int columns = least;
  while (columns < rows && columns < most) columns *= 2;
  return columns;
}

}  // namespace imp::cuda
