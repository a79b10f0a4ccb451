// Merges the splits of a sequence (the reduction of Flash-Decoding's split-K): device code.
//
// A warp has 32 columns of one query head. The weight of a state depends only on the greatest scores. So each lane
// computes it for one of 32 splits while their values are being fetched. What remains in sequence is one multiplication
// and one addition per split.
#pragma once

#include "backend/cuda/attention/split_schedule.cuh"

namespace imp::cuda {

struct Combine {
  static constexpr int kColumns = kWarpSize;  // per warp, one a lane
  static constexpr int kSplits = kWarpSize;   // per run, one a lane
  static constexpr int kStages = 3;           // runs: one in use, the others in flight
  static constexpr int kLanesOfSplit = kColumns / 4;
};

// The factors that merge a state with those before it.
struct alignas(16) MergeState {
  float before, here, sum;
};

struct CombineSharedMemory {
  alignas(16) float values[Combine::kStages][Combine::kSplits][Combine::kColumns];
  MergeState states[Combine::kSplits];
};

// Starts to fetch the warp's columns of a run of the states [first, first + n) of a head.
__device__ __forceinline__ void begin_states(const AttentionArgs& args, const StatesOfSequence& found, int run,
                                             int head, int first_column, CombineSharedMemory& exchange) {
  const int begin = run * Combine::kSplits;
  const int column = lane_of_thread() % Combine::kLanesOfSplit * 4;
  for (int i = lane_of_thread() / Combine::kLanesOfSplit; i < Combine::kSplits;
       i += kWarpSize / Combine::kLanesOfSplit) {
    if (begin + i >= found.n || first_column + column >= args.cache.head_dim) break;
    const std::int64_t state = static_cast<std::int64_t>(found.first + begin + i) * args.n_heads + head;
    arch::begin_copy16(&exchange.values[run % Combine::kStages][i][column],
                       args.split_values + state * args.cache.head_dim + first_column + column);
  }
  arch::end_copy_group();
}

// Grid: (sequences, query heads · column parts). Only for sequences whose splits were processed in parallel.
__global__ void __launch_bounds__(kWarpSize) combine_kernel(AttentionArgs args) {
  const int sequence = static_cast<int>(blockIdx.x);
  const StatesOfSequence found = states_of(args, sequence);
  if (found.n == 0) return;
  __shared__ CombineSharedMemory exchange;
  const int parts = ceil_div(args.cache.head_dim, Combine::kColumns);
  const int head = static_cast<int>(blockIdx.y) / parts;
  const int first_column = static_cast<int>(blockIdx.y) % parts * Combine::kColumns;
  const int lane = lane_of_thread();
  IMP_UNROLL
  for (int run = 0; run < Combine::kStages - 1; ++run) begin_states(args, found, run, head, first_column, exchange);

  float greatest_before = -INFINITY;  // of the earlier runs
  float sum = 0, value = 0;
  for (int run = 0; run * Combine::kSplits < found.n; ++run) {
    begin_states(args, found, run + Combine::kStages - 1, head, first_column, exchange);
    const int first = run * Combine::kSplits;
    const int n = found.n - first < Combine::kSplits ? found.n - first : Combine::kSplits;
    float greatest = -INFINITY, own_sum = 0;
    if (lane < n) {
      const std::int64_t state = static_cast<std::int64_t>(found.first + first + lane) * args.n_heads + head;
      greatest = args.split_sums[2 * state];
      own_sum = args.split_sums[2 * state + 1];
    }
    const float through = fmaxf(greatest_before, greatest_through_lane(greatest));
    const float up = __shfl_up_sync(kAllLanes, through, 1);
    const MergeFactors factors = merge_factors(lane == 0 ? greatest_before : up, greatest);
    exchange.states[lane] = {factors.before, factors.here, own_sum};
    greatest_before = __shfl_sync(kAllLanes, through, kWarpSize - 1);
    arch::wait_for_copies<Combine::kStages - 1>();
    __syncwarp();
    const auto& values = exchange.values[run % Combine::kStages];
    if (run == 0) {
      sum = exchange.states[0].sum;
      value = values[0][lane];
    }
    for (int i = run == 0 ? 1 : 0; i < n; ++i) {
      const MergeState state = exchange.states[i];
      const MergeFactors of_state = {0, state.before, state.here};
      sum = merged(of_state, sum, state.sum);
      value = merged(of_state, value, values[i][lane]);
    }
    __syncwarp();
  }
  if (first_column + lane >= args.cache.head_dim) return;
  const std::int64_t row = args.sequences.first_rows[sequence];
  args.out.data[row * args.out.stride + head * args.cache.head_dim + first_column + lane] = value / sum;
}

}  // namespace imp::cuda
