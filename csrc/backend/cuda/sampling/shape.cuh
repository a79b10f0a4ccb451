// The shape of the sampler's blocks: threads per row, and collective operations.
#pragma once

#include <cstdint>

#include "backend/cuda/device/arch.cuh"
#include "backend/cuda/device/warp.cuh"

namespace imp::cuda {

// Sums of integer weights: exact in any order.
using Mass = unsigned long long;

struct SamplingShape {
  static constexpr int kThreads = 1024;
  static constexpr int kWarps = kThreads / kWarpSize;
  static constexpr int kAtOnce = 4;    // loads of a thread in flight
  static constexpr int kParts = 256;   // parts of an order per round, until the target is in a short list
  static constexpr int kListed = 512;  // the longest such list
};

// body(id, logit) for `first`, `first` + step, … below end.
template <class Body>
__device__ __forceinline__ void for_each_logit(const float* row, int first, int end, int step, const Body& body) {
  constexpr int kAtOnce = SamplingShape::kAtOnce;
  for (int i = first; i < end; i += kAtOnce * step) {
    float logits[kAtOnce];
    IMP_UNROLL
    for (int j = 0; j < kAtOnce; ++j) logits[j] = i + j * step < end ? row[i + j * step] : 0.0F;
    IMP_UNROLL
    for (int j = 0; j < kAtOnce; ++j) {
      if (i + j * step < end) body(i + j * step, logits[j]);
    }
  }
}
// All of a row, divided among the block's threads.
template <class Body>
__device__ __forceinline__ void for_each_logit(const float* row, int n, const Body& body) {
  for_each_logit(row, static_cast<int>(threadIdx.x), n, SamplingShape::kThreads, body);
}

struct Least {
  template <class T>
  __device__ __forceinline__ T operator()(T a, T b) const {
    return b < a ? b : a;
  }
};
struct Sum {
  template <class T>
  __device__ __forceinline__ T operator()(T a, T b) const {
    return a + b;
  }
};

// Every thread gets the result. `shared` holds a value per warp, and may be reused after the call.
template <class T, class Both>
__device__ __forceinline__ T over_block(T value, const Both& both, T* shared) {
  for (int bits = kWarpSize / 2; bits > 0; bits /= 2) value = both(value, __shfl_xor_sync(kAllLanes, value, bits));
  if (threadIdx.x % kWarpSize == 0) shared[threadIdx.x / kWarpSize] = value;
  __syncthreads();
  T result = shared[0];
  for (int warp = 1; warp < SamplingShape::kWarps; ++warp) result = both(result, shared[warp]);
  __syncthreads();
  return result;
}

}  // namespace imp::cuda
