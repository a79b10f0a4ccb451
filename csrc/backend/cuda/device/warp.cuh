// Sums and maxima over a warp and a block, in fixed trees: equal values give equal bits.
#pragma once

#include "backend/cuda/device/arch.cuh"

namespace imp::cuda {

constexpr int kWarpSize = 32;
constexpr unsigned kAllLanes = ~0U;

// Every lane gets the result.
template <class T>
__device__ __forceinline__ T warp_sum(T value) {
  for (int bits = kWarpSize / 2; bits > 0; bits /= 2) value += __shfl_xor_sync(kAllLanes, value, bits);
  return value;
}
template <class T>
__device__ __forceinline__ T warp_max(T value) {
  for (int bits = kWarpSize / 2; bits > 0; bits /= 2) {
    const T other = __shfl_xor_sync(kAllLanes, value, bits);
    value = other > value ? other : value;
  }
  return value;
}

// Every thread gets the result. `shared` holds a value per warp, and may be reused after the call.
template <int kThreads, class T>
__device__ __forceinline__ T block_sum(T value, T* shared) {
  constexpr int kWarps = kThreads / kWarpSize;
  value = warp_sum(value);
  if (threadIdx.x % kWarpSize == 0) shared[threadIdx.x / kWarpSize] = value;
  __syncthreads();
  T total = shared[0];
  for (int warp = 1; warp < kWarps; ++warp) total += shared[warp];
  __syncthreads();
  return total;
}

}  // namespace imp::cuda
