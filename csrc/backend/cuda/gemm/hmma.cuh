// Tile16 weights times many rows of float16 or bfloat16, with warp matrix instructions (mma.sync), which every GPU
// since Ampere has.
//
// A multi-stage pipeline as in MARLIN ("MARLIN: Mixed-Precision Auto-Regressive Parallel Inference on Large Language
// Models"): cp.async fills a ring in shared memory with steps of 64 elements of x, and each warp decodes its weights in
// registers. It differs in the weights' layout (tile16) and in the fixed slices of k. A warp has two strips of weights
// and 64 of the block's rows of x.
#pragma once

#include "backend/cuda/device/tile_swizzle.h"
#include "backend/cuda/gemm/float8_steps.cuh"
#include "backend/cuda/gemm/strip_pairs.cuh"

namespace imp::cuda {

template <DType kType>
struct Hmma {
  static constexpr int kWarpBatchRows = 64;
  // One warp decodes a weight for all of a block's rows of x. Undecoded (float) weights are shared by two warps.
  static constexpr bool kDecodes = kType != DType::F16 && kType != DType::BF16;
  static constexpr int kStripWarps = 4, kBatchRowWarps = kDecodes ? 1 : 2;
  static constexpr int kWarps = kStripWarps * kBatchRowWarps, kThreads = kWarps * kWarpSize;
  static constexpr int kBatchRows = kBatchRowWarps * kWarpBatchRows;
  static constexpr int kBlocks = kDecodes ? 3 : 1;  // per processor: with at most 168 registers per thread
  static constexpr int kStages = 4, kStageBytes = kBatchRows * kTileRowBytes;
  static constexpr int kStagedFloats = staged_floats(kWarpBatchRows);
  // The ring of stages; after the last step, the sums.
  static constexpr std::size_t kRingBytes = std::size_t{kStages} * kStageBytes;
  static constexpr std::size_t kStagedBytes = std::size_t{kWarps} * kStagedFloats * sizeof(float);
  static constexpr std::size_t kSharedBytes = kRingBytes > kStagedBytes ? kRingBytes : kStagedBytes;
};

// A thread's share of the copies of each step: 16-byte chunks of some rows of x.
template <DType kType>
struct StepCopies {
  using Shape = Hmma<kType>;
  static constexpr int kRowChunks = kTileRowBytes / 16;
  static constexpr int kRows = Shape::kBatchRows * kRowChunks / Shape::kThreads;  // per thread

  const std::byte* x;
  unsigned from[kRows];  // offsets in chunks from x
  int to;                // offset of the first in a stage

  __device__ __forceinline__ StepCopies(const TileWork& work, const OutputTile& output) : x(work.x) {
    const int thread = static_cast<int>(threadIdx.x), chunk = thread % kRowChunks;
    to = static_cast<int>(swizzled(static_cast<std::uint32_t>(thread) * 16));
    IMP_UNROLL
    for (int i = 0; i < kRows; ++i) {
      const std::byte* const row = find_x(work, output, (thread + i * Shape::kThreads) / kRowChunks);
      from[i] = static_cast<unsigned>((row - x) / 16 + chunk);
    }
  }
  __device__ __forceinline__ void begin(int step, std::byte* ring) const {
    std::byte* const stage = ring + step % Shape::kStages * Shape::kStageBytes;
    IMP_UNROLL
    for (int i = 0; i < kRows; ++i) {
      const std::size_t chunk = std::size_t{from[i]} + static_cast<unsigned>(step * kRowChunks);
      arch::begin_copy16(stage + to + i * Shape::kThreads * 16, x + chunk * 16);
    }
  }
};

// One step's products of a warp. `x` is the first of its rows of x in the stage. When the weights are decoded,
// load_next() loads those of the next step, so that they arrive during the last products.
template <DType kType, class LoadNext>
__device__ __forceinline__ void add_step(const WeightStep<kType> (&weights)[2], int step, const std::byte* x, int lane,
                                         const LoadNext& load_next,
                                         float (&sums)[2][Hmma<kType>::kWarpBatchRows / 8][4]) {
  ScaleWords words[2];
  IMP_UNROLL
  for (int strip = 0; strip < 2; ++strip) weights[strip].make_words(step, lane, words[strip]);
  // A lane's row in the four matrices that one ldmatrix loads: two groups of rows of x by two of eight elements.
  const int batch_row = lane / 16 * 8 + lane % 8, chunk = lane / 8 % 2;
  IMP_UNROLL
  for (int i = 0; i < kStepProducts; ++i) {
    Fragment a[2];
    IMP_UNROLL
    for (int strip = 0; strip < 2; ++strip) weights[strip].decode(i, step, words[strip], a[strip]);
    if (i == kStepProducts - 1) load_next();
    const std::byte* const row =
        x + swizzled(static_cast<std::uint32_t>(batch_row * kTileRowBytes + (2 * i + chunk) * 16));
    IMP_UNROLL
    for (int pair = 0; pair < Hmma<kType>::kWarpBatchRows / 16; ++pair) {
      std::uint32_t b[4];
      arch::load_matrices(b, row + pair * 16 * kTileRowBytes);
      IMP_UNROLL
      for (int group = 0; group < 2; ++group) {
        const std::uint32_t of_group[2] = {b[2 * group], b[2 * group + 1]};
        IMP_UNROLL
        for (int strip = 0; strip < 2; ++strip) {
          float (&d)[4] = sums[strip][2 * pair + group];
          if constexpr (WeightStep<kType>::kIsBfloat16) {
            arch::mma_bf16(d, a[strip], of_group);
          } else {
            arch::mma_f16(d, a[strip], of_group);
          }
        }
      }
    }
  }
}

template <DType kType>
__global__ void __launch_bounds__(Hmma<kType>::kThreads, Hmma<kType>::kBlocks)
    hmma_kernel(const __grid_constant__ TileWork work) {
  using Shape = Hmma<kType>;
  IMP_DYNAMIC_SHARED(std::byte, shared);
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize, warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int first_batch_row = warp % Shape::kBatchRowWarps * Shape::kWarpBatchRows;

  OutputTile output;
  StripPair pair;
  if (!find_output_tile_of_strips(work, strips_of_block(work.fusion, Shape::kStripWarps), Shape::kBatchRows, &output))
    return;
  if (!find_strip_pair(work, output, warp / Shape::kBatchRowWarps, Tile<kType>::kBytes, &pair)) return;

  const StepCopies<kType> copies(work, output);
  const int n_steps = work.n_tiles * kTileSteps;
  IMP_UNROLL
  for (int step = 0; step < Shape::kStages - 1; ++step) {
    copies.begin(step, shared);  // there are at least kTileSteps
    arch::end_copy_group();
  }
  WeightStep<kType> weights[2];
  IMP_UNROLL
  for (int i = 0; i < 2; ++i) {
    weights[i].begin(pair.tiles[i], work.n_tiles, lane);
    weights[i].load(pair.tiles[i], 0, lane);
  }

  float sums[2][Shape::kWarpBatchRows / 8][4] = {};
  for (int step = 0; step < n_steps; ++step) {
    const auto load_next = [&] {
      const int next = (step + 1) % kTileSteps;
      if (step + 1 == n_steps) return;
      IMP_UNROLL
      for (int i = 0; i < 2; ++i) {
        if (next == 0) pair.tiles[i] += Tile<kType>::kBytes;
        weights[i].load(pair.tiles[i], next, lane);
      }
    };
    arch::wait_for_copies<Shape::kStages - 2>();
    __syncthreads();  // the step has arrived, and all warps are done with the one before
    if (step + Shape::kStages - 1 < n_steps) copies.begin(step + Shape::kStages - 1, shared);
    arch::end_copy_group();
    add_step<kType>(weights, step % kTileSteps,
                    shared + step % Shape::kStages * Shape::kStageBytes + first_batch_row * kTileRowBytes, lane,
                    load_next, sums);
  }
  __syncthreads();
  float* const staged = reinterpret_cast<float*>(shared) + warp * Shape::kStagedFloats;
  IMP_UNROLL
  for (int i = 0; i < 2; ++i) weights[i].finish(sums[i]);
  stage_sums(sums, lane, staged);
  __syncwarp();
  write_strips<Shape::kWarpBatchRows>(work, output, pair, first_batch_row, staged,
                                      factor_offset_of<WeightStep<kType>>(work.n_tiles), lane);
}

}  // namespace imp::cuda
