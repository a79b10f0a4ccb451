// Finds the sequence that a numbered unit of work belongs to, from the lengths on the device.
#pragma once

#include "backend/cuda/attention/tile.cuh"

namespace imp::cuda {

// Inclusive prefix sum over the warp.
__device__ __forceinline__ int sum_through_lane(int value) {
  for (int delta = 1; delta < kWarpSize; delta *= 2) {
    const int other = __shfl_up_sync(kAllLanes, value, static_cast<unsigned>(delta));
    if (lane_of_thread() >= delta) value += other;
  }
  return value;
}

// Inclusive prefix maximum over the warp; ignores NaN.
__device__ __forceinline__ float greatest_through_lane(float value) {
  for (int delta = 1; delta < kWarpSize; delta *= 2) {
    const float other = __shfl_up_sync(kAllLanes, value, static_cast<unsigned>(delta));
    if (lane_of_thread() >= delta) value = fmaxf(value, other);
  }
  return value;
}

struct UnitOfSequence {
  int sequence = -1;  // none: there are fewer units
  int within = 0;     // index in the sequence
};

// Finds a unit. Sequence i has count(i) units, after those of earlier sequences. Called by whole warps.
template <class Count>
__device__ __forceinline__ UnitOfSequence find_unit(int number, int n_sequences, const Count& count) {
  const int lane = lane_of_thread();
  int before = 0;
  for (int first = 0; first < n_sequences; first += kWarpSize) {
    const int mine = first + lane < n_sequences ? count(first + lane) : 0;
    const int through = sum_through_lane(mine);
    const unsigned reach = __ballot_sync(kAllLanes, before + through > number);
    if (reach != 0) {
      const int owner = __ffs(static_cast<int>(reach)) - 1;
      return {first + owner, number - before - __shfl_sync(kAllLanes, through - mine, owner)};
    }
    before += __shfl_sync(kAllLanes, through, kWarpSize - 1);
  }
  return {};
}

}  // namespace imp::cuda
