// Work by number: which sequence has it. Every block finds its own from what lies on the device.
#pragma once

#include "backend/cuda/attention/tile.cuh"

namespace imp::cuda {

struct FoundUnit {
  int sequence = -1;  // none: there are fewer units
  int within = 0;     // number among the sequence's
};

// Sequence i has count(i) units, which follow those of the sequences before it. Called by whole warps.
template <class Count>
__device__ __forceinline__ FoundUnit find_unit(int number, int n_sequences, const Count& count) {
  const int lane = lane_of_thread();
  int before = 0;
  for (int first = 0; first < n_sequences; first += kWarpSize) {
    const int mine = first + lane < n_sequences ? count(first + lane) : 0;
    int through = mine;
    for (int delta = 1; delta < kWarpSize; delta *= 2) {
      const int other = __shfl_up_sync(kAllLanes, through, static_cast<unsigned>(delta));
      if (lane >= delta) through += other;
    }
    const unsigned reach = __ballot_sync(kAllLanes, before + through > number);
    if (reach != 0) {
      const int owner = __ffs(static_cast<int>(reach)) - 1;
      return {first + owner, number - before - __shfl_sync(kAllLanes, through - mine, owner)};
    }
    before += __shfl_sync(kAllLanes, through, kWarpSize - 1);
  }
  return {};
}

// Units of all sequences before one.
template <class Count>
__device__ __forceinline__ int units_before(int sequence, const Count& count) {
  int n = 0;
  for (int i = lane_of_thread(); i < sequence; i += kWarpSize) n += count(i);
  return warp_sum(n);
}

// Splits that the row of a sequence sees; of sequences of several rows, none.
struct SplitsOfSequence {
  int first = 0, n = 0;
};

__device__ __forceinline__ SplitsOfSequence splits_of(const AttentionArgs& args, int sequence) {
  if (args.sequences.row_counts[sequence] != 1) return {};
  const int position = args.sequences.first_positions[sequence];
  const int first = seen_from(position, args.window).first / args.split_tokens;
  return {first, position / args.split_tokens - first + 1};
}

}  // namespace imp::cuda
