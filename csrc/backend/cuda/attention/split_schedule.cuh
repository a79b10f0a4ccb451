// Decides which one-row sequences are processed split by split in parallel (split-K) and which by one block.
//
// States of splits come from a pool. In batch order each sequence with several splits claims a state for each of them.
// If the claim fits the pool, the splits of the sequence are processed in parallel. A sequence with more splits than
// the pool has states claims none. Other sequences are processed whole, split after split, with the same bits. Every
// block derives this from the lengths on the device.
#pragma once

#include "backend/cuda/attention/units.cuh"

namespace imp::cuda {

// Splits that the row of a sequence sees; 0 for sequences of several rows.
struct SplitsOfSequence {
  int first = 0, n = 0;
};

__device__ __forceinline__ SplitsOfSequence splits_of(const AttentionArgs& args, int sequence) {
  if (args.sequences.row_counts[sequence] != 1) return {};
  const int position = args.sequences.first_positions[sequence];
  const int first = visible_keys(position, args.window).first / kSplitTokens;
  return {first, position / kSplitTokens - first + 1};
}

constexpr int claimed_states(int n_splits, int n_states) {
  return n_splits > 1 && n_splits <= n_states ? n_splits : 0;
}
constexpr bool is_parallel(int claimed, int claimed_through, int n_states) {
  return claimed > 0 && claimed_through <= n_states;
}

// A split of a sequence, or a whole sequence.
struct WorkItem {
  int sequence = -1;  // none: there is no more
  int within = 0;     // index of the split in the sequence
  int state = -1;     // index of the split's state in the pool; none: the sequence is whole
};

// Finds work items by number. Called by whole warps, with ascending numbers.
class SplitScheduler {
 public:
  __device__ __forceinline__ WorkItem find(const AttentionArgs& args, int number) {
    const int lane = lane_of_thread();
    for (; first_ < args.sequences.n_sequences; first_ += kWarpSize) {
      const int n_splits = first_ + lane < args.sequences.n_sequences ? splits_of(args, first_ + lane).n : 0;
      const int claimed = claimed_states(n_splits, args.n_states);
      const int claimed_through = claimed_before_ + sum_through_lane(claimed);
      const bool parallel = is_parallel(claimed, claimed_through, args.n_states);
      const int n_items = parallel ? n_splits : (n_splits > 0 ? 1 : 0);
      const int items_through = items_before_ + sum_through_lane(n_items);
      const unsigned reach = __ballot_sync(kAllLanes, items_through > number);
      if (reach != 0) {
        const int owner = __ffs(static_cast<int>(reach)) - 1;
        const int within = number - __shfl_sync(kAllLanes, items_through - n_items, owner);
        const int state = __shfl_sync(kAllLanes, parallel ? claimed_through - claimed : -1, owner);
        return {first_ + owner, within, state < 0 ? -1 : state + within};
      }
      claimed_before_ = __shfl_sync(kAllLanes, claimed_through, kWarpSize - 1);
      items_before_ = __shfl_sync(kAllLanes, items_through, kWarpSize - 1);
    }
    return {};
  }

 private:
  int first_ = 0;  // sequence where the search continues
  int claimed_before_ = 0, items_before_ = 0;
};

// The states of a sequence's splits, or none if it is whole. Called by whole warps.
struct StatesOfSequence {
  int first = 0, n = 0;
};

__device__ __forceinline__ StatesOfSequence states_of(const AttentionArgs& args, int sequence) {
  const int own = claimed_states(splits_of(args, sequence).n, args.n_states);
  if (own == 0) return {};
  int before = 0;
  for (int i = lane_of_thread(); i < sequence; i += kWarpSize) {
    before += claimed_states(splits_of(args, i).n, args.n_states);
  }
  before = warp_sum(before);
  return is_parallel(own, before + own, args.n_states) ? StatesOfSequence{before, own} : StatesOfSequence{};
}

}  // namespace imp::cuda
