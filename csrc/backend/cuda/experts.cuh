// The choice of experts, and the order in which their rows are grouped: the device's side.
#pragma once

#include <cstdint>

#include "backend/cuda/arch.cuh"
#include "backend/cuda/math.cuh"
#include "backend/cuda/warp.cuh"
#include "backend/experts.h"
#include "backend/rows.h"

namespace imp::cuda {

constexpr int kRouteThreads = 128;
constexpr int kGroupThreads = 256;

// Greater scores have greater places, of equal ones the lower expert; NaN comes before all numbers, so that it is
// chosen and seen. No two experts share a place, and none has the last there is.
__device__ __forceinline__ unsigned long long place_in_order(float score, int expert) {
  if (score == 0) score = 0;  // -0 is no less than +0
  const int bits = __float_as_int(score);
  const int key = score != score ? 0x7FFFFFFE : bits ^ (bits >> 31 & 0x7FFFFFFF);
  const unsigned ascending = static_cast<unsigned>(key) ^ 0x80000000U;
  return static_cast<unsigned long long>(ascending) << 32 | (0xFFFFFFFFU - static_cast<unsigned>(expert));
}

// e^(score - greatest) of all experts, summed.
__device__ __forceinline__ float softmax_total(const float* scores, int n_experts, float greatest, int lane) {
  float total = 0;
  for (int expert = lane; expert < n_experts; expert += kWarpSize) total += exp_of(scores[expert] - greatest);
  return warp_sum(total);
}

// One warp for each row.
static __global__ void __launch_bounds__(kRouteThreads)
    choose_experts_kernel(Rows scores, ExpertRouting routing, ExpertRows out) {
  const int row = static_cast<int>(blockIdx.x * (kRouteThreads / kWarpSize) + threadIdx.x / kWarpSize);
  if (row >= scores.n_rows) return;
  const int lane = static_cast<int>(threadIdx.x % kWarpSize);
  const float* const of_row = scores.data + row * scores.stride;
  std::int32_t* const experts = out.experts + static_cast<std::ptrdiff_t>(row) * routing.n_used;
  float* const weights = out.weights + static_cast<std::ptrdiff_t>(row) * routing.n_used;

  unsigned long long last = ~0ULL;  // the place of the one chosen before
  float greatest = 0, total_of_chosen = 0;
  for (int i = 0; i < routing.n_used; ++i) {
    unsigned long long best = 0;
    for (int expert = lane; expert < routing.n_experts; expert += kWarpSize) {
      const unsigned long long place = place_in_order(of_row[expert], expert);
      if (place < last && place > best) best = place;
    }
    last = warp_max(best);
    const int chosen = static_cast<int>(0xFFFFFFFFU - static_cast<unsigned>(last));
    const float score = of_row[chosen];
    if (i == 0) greatest = score;
    const float weight = exp_of(score - greatest);
    total_of_chosen += weight;
    if (lane == 0) {
      experts[i] = chosen;
      weights[i] = weight;
    }
  }
  const float total = routing.normalized ? total_of_chosen : softmax_total(of_row, routing.n_experts, greatest, lane);
  __syncwarp();
  for (int i = lane; i < routing.n_used; i += kWarpSize) weights[i] = weights[i] / total * routing.scale;
}

// One block: each thread places the rows of its experts in the order of the batch.
static __global__ void __launch_bounds__(kGroupThreads) group_by_expert_kernel(ExpertRows rows) {
  const int n_grouped = rows.n_rows * rows.n_used;
  for (int expert = static_cast<int>(threadIdx.x); expert < rows.n_experts; expert += kGroupThreads) {
    int n = 0;
    for (int i = 0; i < n_grouped; ++i) n += rows.experts[i] == expert ? 1 : 0;
    rows.begins[expert + 1] = n;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    rows.begins[0] = 0;
    for (int expert = 0; expert < rows.n_experts; ++expert) rows.begins[expert + 1] += rows.begins[expert];
  }
  __syncthreads();
  for (int expert = static_cast<int>(threadIdx.x); expert < rows.n_experts; expert += kGroupThreads) {
    int place = rows.begins[expert];
    for (int i = 0; i < n_grouped; ++i) {
      if (rows.experts[i] != expert) continue;
      rows.places[i] = place;
      rows.sources[place] = i / rows.n_used;
      ++place;
    }
  }
}

}  // namespace imp::cuda
