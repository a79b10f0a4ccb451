// Weights of float16 or bfloat16 by any number of rows of the same: matrix instructions.
//
// A block makes 16 columns of out for 8 · kGroups rows, its warps slices of k. Weights are the instructions' left
// operand, as tiles hold it; rows of x are its columns. Lane 4 · g + t has of each group sums of the strip's rows g and
// g + 8 by the group's columns 2t and 2t + 1.
#pragma once

#include "backend/cuda/gemm/tile_work.cuh"

namespace imp::cuda {

constexpr int kStepElements = 16;  // of k in one instruction
constexpr int kChunkSteps = 4;
constexpr int kTileChunks = kTileElements / kStepElements / kChunkSteps;

// What a lane holds of a chunk of weights: its part of each step.
struct ChunkElements {
  arch::Vec16 steps[kChunkSteps];

  __device__ __forceinline__ void load(const std::byte* strip, int chunk, int lane) {
    IMP_UNROLL
    for (int i = 0; i < kChunkSteps; ++i) {
      const std::byte* const fragment = strip + static_cast<std::ptrdiff_t>(chunk * kChunkSteps + i) * kFragmentBytes;
      steps[i] = arch::load_streamed(fragment + lane * kLaneBytes);
    }
  }
};

template <DType kType, int kGroups>
__device__ __forceinline__ void add_chunk(const ChunkElements& weights, const std::byte* const (&x)[kGroups],
                                          int first_element, float (&sums)[kGroups][4]) {
  IMP_UNROLL
  for (int i = 0; i < kChunkSteps; ++i) {
    const std::uint32_t (&a)[4] = weights.steps[i].word;
    IMP_UNROLL
    for (int group = 0; group < kGroups; ++group) {
      const std::byte* const from = x[group] + (first_element + i * kStepElements) * 2;
      const std::uint32_t b[2] = {*reinterpret_cast<const std::uint32_t*>(from),
                                  *reinterpret_cast<const std::uint32_t*>(from + kStepElements)};
      if constexpr (kType == DType::F16) {
        arch::mma_f16(sums[group], a, b);
      } else {
        arch::mma_bf16(sums[group], a, b);
      }
    }
  }
}

// To where the slices meet.
template <int kGroups>
__device__ __forceinline__ void store_sums(const float (&of_groups)[kGroups][4], float* sums, int lane) {
  IMP_UNROLL
  for (int group = 0; group < kGroups; ++group) {
    IMP_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int column = group * 8 + lane % 4 * 2 + i % 2;
      sums[column * kSumStride + lane / 4 + i / 2 * 8] = of_groups[group][i];
    }
  }
}

// The next chunk of weights is under way while one is multiplied.
template <DType kType, int kGroups>
__global__ void __launch_bounds__(kTileThreads, 2) mma_kernel(const __grid_constant__ TileWork work) {
  constexpr int kColumns = kGroups * 8;
  IMP_DYNAMIC_SHARED(float, shared_sums);
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize, slice = static_cast<int>(threadIdx.x) / kWarpSize;

  TilePlace place;
  if (!find_place(work, kColumns, &place)) return;
  const bool is_pair = work.fusion != GemmFusion::none;
  const std::byte* strip = find_strip(work, place, place.term, Tile<kType>::kBytes);
  const std::byte* const second = is_pair ? find_strip(work, place, 1, Tile<kType>::kBytes) : strip;
  if (strip == nullptr || second == nullptr) return;

  const TileRange tiles = slice_of(work.n_tiles, slice);
  const int begin = tiles.begin * kTileChunks, end = tiles.end * kTileChunks;
  ChunkElements next;
  next.load(strip, begin, lane);
  const std::byte* x[kGroups];  // of column g, from element 2t on
  IMP_UNROLL
  for (int group = 0; group < kGroups; ++group) x[group] = find_x(work, place, group * 8 + lane / 4) + lane % 4 * 4;

  for (int product = 0;; ++product) {
    float sums[kGroups][4] = {};
    for (int chunk = begin; chunk < end; ++chunk) {
      const ChunkElements weights = next;
      if (chunk + 1 < end) next.load(strip, chunk + 1, lane);
      add_chunk<kType>(weights, x, chunk * kChunkSteps * kStepElements, sums);
    }
    store_sums(sums, sums_of(shared_sums, product, slice, kColumns), lane);
    if (product == (is_pair ? 1 : 0)) break;
    strip = second;
    next.load(strip, begin, lane);
  }
  __syncthreads();
  // Rows of float16 have their factor behind their elements.
  write_out<kColumns>(work, place, shared_sums, kType == DType::F16 ? work.n_tiles * kTileElements * 2 : 0);
}

}  // namespace imp::cuda
