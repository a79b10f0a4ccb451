// Adjusted copies of rows of logits: penalties, biases and masks with the CPU's operations in the CPU's order.
#pragma once

#include "backend/cuda/sampling/data.h"
#include "backend/cuda/sampling/shape.cuh"
#include "backend/rows.h"

namespace imp::cuda {

// The CPU treats denormals as zero.
__device__ __forceinline__ float without_denormals(float x) {
  return fabsf(x) < 0x1p-126F ? copysignf(0.0F, x) : x;
}

__device__ __forceinline__ float adjusted_of(float logit, AdjustmentStep step, float amount) {
  constexpr float kMax = 0x1.fffffep127F;
  const float x = without_denormals(logit);
  const float y = without_denormals(amount);
  float result = x + y;
  if (step == AdjustmentStep::repetition) result = x > 0 ? x / y : x * y;
  result = result < -kMax ? -kMax : result;
  return without_denormals(result > kMax ? kMax : result);
}

// Entries of one token are consecutive; the thread of the first entry applies them all.
__device__ __forceinline__ void apply_step(float* row, const Adjustment* begin, const Adjustment* end,
                                           AdjustmentStep step) {
  for (const Adjustment* at = begin + threadIdx.x; at < end; at += SamplingShape::kThreads) {
    if (at != begin && at[-1].token == at->token) continue;
    float logit = row[at->token];
    for (const Adjustment* one = at; one < end && one->token == at->token; ++one) {
      logit = adjusted_of(logit, step, one->amount);
    }
    row[at->token] = logit;
  }
}

// One block per request. Row i of `adjusted` belongs to request i, and is written only if the request changes its
// logits.
__global__ void __launch_bounds__(SamplingShape::kThreads)
    adjust_rows_kernel(Rows logits, const DeviceRequest* requests, const Adjustment* entries,
                       const std::uint32_t* masks, Rows adjusted) {
  const DeviceRequest& request = requests[blockIdx.x];
  if (!request.is_adjusted) return;
  float* const row = adjusted.data + blockIdx.x * adjusted.stride;
  for_each_logit(logits.data + request.logits_row * logits.stride, logits.width,
                 [&](int id, float logit) { row[id] = logit; });
  for (int step = 0; step < kAdjustmentSteps; ++step) {
    __syncthreads();
    apply_step(row, entries + request.steps[step], entries + request.steps[step + 1],
               static_cast<AdjustmentStep>(step));
  }
  if (request.first_mask_word < 0) return;
  __syncthreads();
  const std::uint32_t* const allowed = masks + request.first_mask_word;
  for (int id = static_cast<int>(threadIdx.x); id < logits.width; id += SamplingShape::kThreads) {
    if ((allowed[id / 32] >> (id % 32) & 1U) == 0) row[id] = __uint_as_float(0xFF800000U);
  }
}

}  // namespace imp::cuda
