// Normalizes and rotates one head.
#pragma once

#include "backend/cuda/device/arch.cuh"
#include "backend/cuda/device/warp.cuh"
#include "backend/cuda/ops/rope_args.h"

namespace imp::cuda {

// A warp's work: a head's norm, then its rotation by cosines and sines [n_pairs] each.
__device__ __forceinline__ void rotate_head(float* head, const RopeShape& shape, const HeadNorm& norm,
                                            const float* cosines) {
  const int lane = static_cast<int>(threadIdx.x % kWarpSize);
  if (norm.weight != nullptr) {
    float sum = 0;
    for (int i = lane; i < shape.head_dim; i += kWarpSize) sum = fmaf(head[i], head[i], sum);
    const float mean = warp_sum(sum) / static_cast<float>(shape.head_dim);
    const float factor = 1.0F / sqrtf(mean + norm.epsilon);
    for (int i = lane; i < shape.head_dim; i += kWarpSize) head[i] = head[i] * factor * norm.weight[i];
    __syncwarp();
  }
  for (int i = lane; i < shape.n_pairs; i += kWarpSize) {
    float* const first = head + (shape.is_adjacent ? 2 * i : i);
    float* const second = shape.is_adjacent ? first + 1 : first + shape.n_pairs;
    const float cosine = cosines[i], sine = cosines[shape.n_pairs + i];
    const float a = *first, b = *second;
    *first = fmaf(a, cosine, -(b * sine));
    *second = fmaf(a, sine, b * cosine);
  }
}

}  // namespace imp::cuda
