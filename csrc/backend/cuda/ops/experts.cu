// Routing to experts and grouping of their rows.
#include <cstdint>

#include "backend/cuda/device/arch.cuh"
#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/device/math.cuh"
#include "backend/cuda/device/warp.cuh"
#include "backend/cuda/ops/cuda_ops.h"
#include "backend/experts.h"
#include "backend/rows.h"
#include "base/ceil_div.h"

namespace imp::cuda {

constexpr int kRouteThreads = 128;
constexpr int kGroupThreads = 1024;

// Sort keys: a greater score has a greater key, of equal scores the lower expert. NaN comes first, so that it is chosen
// and reported. No two experts share a key, and none has the greatest possible one.
__device__ __forceinline__ unsigned long long selection_key(float score, int expert) {
  if (score == 0) score = 0;  // -0 equals +0
  const int bits = __float_as_int(score);
  const int key = score != score ? 0x7FFFFFFE : bits ^ (bits >> 31 & 0x7FFFFFFF);
  const unsigned ascending = static_cast<unsigned>(key) ^ 0x80000000U;
  return static_cast<unsigned long long>(ascending) << 32 | (0xFFFFFFFFU - static_cast<unsigned>(expert));
}

// The sum of e^(score - greatest) over all experts.
__device__ __forceinline__ float softmax_total(const float* scores, int n_experts, float greatest, int lane) {
  float total = 0;
  for (int expert = lane; expert < n_experts; expert += kWarpSize) total += exp_of(scores[expert] - greatest);
  return warp_sum(total);
}

// One warp per row.
static __global__ void __launch_bounds__(kRouteThreads)
    choose_experts_kernel(Rows scores, ExpertRouting routing, ExpertRows out) {
  const int row = static_cast<int>(blockIdx.x * (kRouteThreads / kWarpSize) + threadIdx.x / kWarpSize);
  if (row >= scores.n_rows) return;
  const int lane = static_cast<int>(threadIdx.x % kWarpSize);
  const float* const of_row = scores.data + row * scores.stride;
  std::int32_t* const experts = out.experts + static_cast<std::ptrdiff_t>(row) * routing.n_used;
  float* const weights = out.weights + static_cast<std::ptrdiff_t>(row) * routing.n_used;

  unsigned long long last = ~0ULL;  // key of the expert chosen before
  float greatest = 0, total_of_chosen = 0;
  for (int i = 0; i < routing.n_used; ++i) {
    unsigned long long best = 0;
    for (int expert = lane; expert < routing.n_experts; expert += kWarpSize) {
      const unsigned long long key = selection_key(of_row[expert], expert);
      if (key < last && key > best) best = key;
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

// Calls visit(i, lanes) for 32 entries of the batch at a time on all lanes. `lanes` are those whose entry belongs to
// the expert.
template <class Visit>
__device__ __forceinline__ void for_each_entry(const ExpertRows& rows, int expert, const Visit& visit) {
  const int n_grouped = rows.n_rows * rows.n_used, lane = static_cast<int>(threadIdx.x) % kWarpSize;
  for (int first = 0; first < n_grouped; first += kWarpSize) {
    const int i = first + lane;
    visit(i, __ballot_sync(kAllLanes, i < n_grouped && rows.experts[i] == expert));
  }
}

// One block. Each warp places the rows of its experts in batch order.
static __global__ void __launch_bounds__(kGroupThreads) group_by_expert_kernel(ExpertRows rows) {
  constexpr int kWarps = kGroupThreads / kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize, lane = static_cast<int>(threadIdx.x) % kWarpSize;
  for (int expert = warp; expert < rows.n_experts; expert += kWarps) {
    int n = 0;
    for_each_entry(rows, expert, [&](int, unsigned lanes) { n += __popc(lanes); });
    if (lane == 0) rows.begins[expert + 1] = n;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    rows.begins[0] = 0;
    for (int expert = 0; expert < rows.n_experts; ++expert) rows.begins[expert + 1] += rows.begins[expert];
  }
  __syncthreads();
  for (int expert = warp; expert < rows.n_experts; expert += kWarps) {
    int begin = rows.begins[expert];
    for_each_entry(rows, expert, [&](int i, unsigned lanes) {
      if ((lanes >> lane & 1U) != 0) {
        const int grouped_row = begin + __popc(lanes & ((1U << lane) - 1));
        rows.grouped_rows[i] = grouped_row;
        rows.sources[grouped_row] = i / rows.n_used;
      }
      begin += __popc(lanes);
    });
  }
}

void route_experts(Stream& stream, Rows scores, const ExpertRouting& routing, const ExpertRows& out) {
  constexpr int kWarps = kRouteThreads / kWarpSize;
  scores.n_rows = out.n_rows;
  launch(stream, choose_experts_kernel,
         {.grid = static_cast<unsigned>(ceil_div(out.n_rows, kWarps)), .block = kRouteThreads}, scores, routing, out);
  launch(stream, group_by_expert_kernel, {.grid = 1, .block = kGroupThreads}, out);
}

}  // namespace imp::cuda
