// Tile16 weights times many rows of float16 or bfloat16, with Hopper's warpgroup products (wgmma).
//
// Warp specialization as in CUTLASS: a producer warpgroup copies steps of 64 elements of 128 rows of x into a ring in
// shared memory (TMA), and two consumer warpgroups multiply. It differs in that weights are the register operand: each
// warp decodes two strips in registers, one during the products of the other. If there are too few such blocks for all
// processors, blocks are a quarter as large: one consumer warpgroup, one strip per warp. Both sizes sum in the same
// order.
#pragma once

#include "backend/cuda/device/hopper.cuh"
#include "backend/cuda/gemm/float8_steps.cuh"
#include "backend/cuda/gemm/strip_pairs.cuh"

namespace imp::cuda {

struct Wgmma {
  static constexpr int kBatchRows = hopper::kProductColumns;
  static constexpr int kStages = 6, kStageBytes = kBatchRows * kTileRowBytes;
  static constexpr int kStagedFloats = staged_floats(kBatchRows);
  static constexpr int kProducerRegisters = 24;
};

template <int kConsumers, int kStripsOfWarp, int kBlocks>
struct WgmmaShape : Wgmma {
  static constexpr int kConsumerWarps = kConsumers * hopper::kWarpgroupThreads / kWarpSize;
  static constexpr int kThreads = (1 + kConsumers) * hopper::kWarpgroupThreads;
  static constexpr int kStrips = kStripsOfWarp;
  static constexpr int kBlocksOfProcessor = kBlocks;
  // The ring; after the last step the sums. The barriers follow.
  static constexpr int kRingBytes = kStages * kStageBytes;
  static constexpr int kStagedBytes = kConsumerWarps * kStagedFloats * static_cast<int>(sizeof(float));
  static constexpr int kBarriersAt = kRingBytes > kStagedBytes ? kRingBytes : kStagedBytes;
  static constexpr int kSharedBytes = kBarriersAt + 2 * kStages * 8;
  // All registers of a processor except the producers', in steps of 8.
  static constexpr int kConsumerRegisters =
      smaller_of(240, (65536 / (kBlocks * hopper::kWarpgroupThreads) - kProducerRegisters) / kConsumers / 8 * 8);
};
using WideWgmma = WgmmaShape<2, 2, 1>;
using NarrowWgmma = WgmmaShape<1, 1, 2>;

template <class Shape>
inline __host__ __device__ int wgmma_strips(const TileWork& work) {
  return Shape::kStrips == 1 ? Shape::kConsumerWarps : strips_of_block(work.fusion, Shape::kConsumerWarps);
}

// The stage of a step in the ring, and the phase of that use of the stage.
struct RingSlot {
  int stage;
  unsigned phase;
};
constexpr RingSlot ring_slot(int step) {
  return {step % Wgmma::kStages, static_cast<unsigned>(step / Wgmma::kStages) & 1U};
}

// Stages in shared memory with two barriers each: full when its bytes have arrived, empty when every consumer warp is
// done with it.
struct Ring {
  std::byte* stages;
  std::uint64_t* full;
  std::uint64_t* empty;

  __device__ __forceinline__ Ring(std::byte* shared, int barriers_at)
      : stages(shared), full(reinterpret_cast<std::uint64_t*>(shared + barriers_at)), empty(full + Wgmma::kStages) {}

  // By one thread, before the block synchronizes.
  __device__ __forceinline__ void begin(int n_consumer_warps) const {
    for (int stage = 0; stage < Wgmma::kStages; ++stage) {
      hopper::init_barrier(full + stage, 1);
      hopper::init_barrier(empty + stage, static_cast<unsigned>(n_consumer_warps));
    }
    hopper::fence_barrier_init();
  }
  // By one thread.
  __device__ __forceinline__ void fill(const hopper::TensorMap& x, int first_row, int n_steps) const {
    for (int step = 0; step < n_steps; ++step) {
      const auto [stage, phase] = ring_slot(step);
      hopper::wait(empty + stage, phase ^ 1);  // waits for the phase before; a stage's first use has none
      hopper::arrive_expecting(full + stage, Wgmma::kStageBytes);
      hopper::begin_tile_copy(stages + stage * Wgmma::kStageBytes, x, step * kStepElements, first_row, full + stage);
    }
  }
  // The descriptor of a step's tile, once it has arrived.
  __device__ __forceinline__ std::uint64_t wait_for(int step) const {
    const auto [stage, phase] = ring_slot(step);
    hopper::wait(full + stage, phase);
    return tile_descriptor(hopper::address_of(stages + stage * Wgmma::kStageBytes));
  }
  // By one thread of each warp.
  __device__ __forceinline__ void leave(int step) const { hopper::arrive(empty + ring_slot(step).stage); }
};

using ProductSums = float[hopper::kProductGroups][4];

using StepFragments = Fragment[kStepProducts];

// A strip's weights: loaded one step ahead, then decoded.
template <DType kType>
struct StripFeed {
  const std::byte* tile;
  WeightStep<kType> step;

  __device__ __forceinline__ void begin(const std::byte* tiles, int n_steps, int lane) {
    tile = tiles;
    step.begin(tile, n_steps / kTileSteps, lane);
    step.load(tile, 0, lane);
  }
  // Makes the fragments of step `at`, and loads the next step.
  __device__ __forceinline__ void decode(int at, int n_steps, int lane, StepFragments& fragments) {
    ScaleWords words;
    step.make_words(at % kTileSteps, lane, words);
    IMP_UNROLL
    for (int i = 0; i < kStepProducts; ++i) step.decode(i, at % kTileSteps, words, fragments[i]);
    if (at + 1 == n_steps) return;
    if ((at + 1) % kTileSteps == 0) tile += Tile<kType>::kBytes;
    step.load(tile, (at + 1) % kTileSteps, lane);
  }
};

// Starts a group of products. Do not touch the fragments until it has ended.
template <DType kType>
__device__ __forceinline__ void begin_group(std::uint64_t x, const StepFragments& fragments, ProductSums& sums) {
  constexpr std::uint64_t kProductBytes = 16 * 2 / 16;  // in the unit of descriptors
  hopper::begin_products();
  IMP_UNROLL
  for (int i = 0; i < kStepProducts; ++i) {
    if constexpr (WeightStep<kType>::kIsBfloat16) {
      hopper::multiply_bf16(sums, fragments[i], x + i * kProductBytes);
    } else {
      hopper::multiply_f16(sums, fragments[i], x + i * kProductBytes);
    }
  }
  hopper::end_product_group();
}

// All products of a warp's two strips. One group is always in flight while the other strip is decoded.
template <DType kType>
__device__ __forceinline__ void multiply_strips(const StripPair& pair, const Ring& ring, int n_steps, int lane,
                                                ProductSums (&sums)[2]) {
  StripFeed<kType> first, second;
  StepFragments of_first, of_second;
  first.begin(pair.tiles[0], n_steps, lane);
  second.begin(pair.tiles[1], n_steps, lane);
  first.decode(0, n_steps, lane, of_first);
  for (int step = 0; step < n_steps; ++step) {
    const std::uint64_t x = ring.wait_for(step);
    begin_group<kType>(x, of_first, sums[0]);
    hopper::wait_for_products<1>();  // of the second strip in the step before
    if (step > 0 && lane == 0) ring.leave(step - 1);
    second.decode(step, n_steps, lane, of_second);
    begin_group<kType>(x, of_second, sums[1]);
    hopper::wait_for_products<1>();  // of the first strip
    if (step + 1 < n_steps) first.decode(step + 1, n_steps, lane, of_first);
  }
  hopper::wait_for_products<0>();
  first.step.finish(sums[0]);
  second.step.finish(sums[1]);
}

// All products of a warp's single strip. One step's group is always in flight while the next step is decoded. Steps
// come in pairs, since a tile has an even number.
template <DType kType>
__device__ __forceinline__ void multiply_strips(const StripPair& pair, const Ring& ring, int n_steps, int lane,
                                                ProductSums (&sums)[1]) {
  static_assert(kTileSteps % 2 == 0);
  StripFeed<kType> feed;
  StepFragments even, odd;
  feed.begin(pair.tiles[0], n_steps, lane);
  feed.decode(0, n_steps, lane, even);
  for (int step = 0; step < n_steps; step += 2) {
    begin_group<kType>(ring.wait_for(step), even, sums[0]);
    hopper::wait_for_products<1>();
    if (step > 0 && lane == 0) ring.leave(step - 1);
    feed.decode(step + 1, n_steps, lane, odd);
    begin_group<kType>(ring.wait_for(step + 1), odd, sums[0]);
    hopper::wait_for_products<1>();
    if (lane == 0) ring.leave(step);
    if (step + 2 < n_steps) feed.decode(step + 2, n_steps, lane, even);
  }
  hopper::wait_for_products<0>();
  feed.step.finish(sums[0]);
}

template <DType kType, class Shape>
__device__ __forceinline__ void run_wgmma_block(const hopper::TensorMap& x, const TileWork& work) {
  IMP_DYNAMIC_SHARED(std::byte, shared);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarpSize;
  const int n_steps = work.n_tiles * kTileSteps;
  const Ring ring(shared, Shape::kBarriersAt);
  OutputTile output;
  if (!find_output_tile_of_strips(work, wgmma_strips<Shape>(work), Wgmma::kBatchRows, &output)) return;
  if (thread == 0) ring.begin(Shape::kConsumerWarps);
  __syncthreads();
  if (thread < hopper::kWarpgroupThreads) {
    hopper::keep_registers<Wgmma::kProducerRegisters>();
    if (thread == 0) ring.fill(x, output.first, n_steps);
    __syncthreads();
  } else {
    hopper::take_registers<Shape::kConsumerRegisters>();
    const int warp = thread / kWarpSize - hopper::kWarpgroupThreads / kWarpSize;
    StripPair pair;
    find_strip_pair<Shape::kStrips>(work, output, warp, Tile<kType>::kBytes, &pair);
    ProductSums sums[Shape::kStrips] = {};
    multiply_strips<kType>(pair, ring, n_steps, lane, sums);
    __syncthreads();  // no warp reads the ring any more
    float* const staged = reinterpret_cast<float*>(shared) + warp * Wgmma::kStagedFloats;
    stage_sums(sums, lane, staged);
    __syncwarp();
    write_strips<Wgmma::kBatchRows, Shape::kStrips>(work, output, pair, 0, staged,
                                                    factor_offset_of<WeightStep<kType>>(work.n_tiles), lane);
  }
}

// Not for experts: rows of x must be consecutive.
template <DType kType, class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocksOfProcessor)
    wgmma_kernel(const __grid_constant__ hopper::TensorMap x, const __grid_constant__ TileWork work) {
#if IMP_HOPPER
  run_wgmma_block<kType, Shape>(x, work);
#else
  __trap();  // no plan selects it (device/images.h)
#endif
}

}  // namespace imp::cuda
