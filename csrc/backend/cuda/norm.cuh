// Root-mean-square normalization of runs of elements: the device's side.
#pragma once

#include "backend/cuda/arch.cuh"
#include "backend/cuda/warp.cuh"
#include "backend/rows.h"

namespace imp::cuda {

constexpr int kNormThreads = 256;

// One block for each row. With y, x += y comes first. out may be x.
template <bool kAdds>
__global__ void __launch_bounds__(kNormThreads)
    rms_norm_kernel(Rows x, Rows y, const float* weight, float epsilon, Rows out) {
  __shared__ float sums[kNormThreads / kWarpSize];
  float* const row = x.data + blockIdx.x * x.stride;
  float sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < x.width; i += kNormThreads) {
    float value = row[i];
    if (kAdds) {
      value += y.data[blockIdx.x * y.stride + i];
      row[i] = value;
    }
    sum = fmaf(value, value, sum);
  }
  const float mean = block_sum<kNormThreads>(sum, sums) / static_cast<float>(x.width);
  const float factor = 1.0F / sqrtf(mean + epsilon);
  float* const to = out.data + blockIdx.x * out.stride;
  // Each thread reads the elements that it wrote.
  for (int i = static_cast<int>(threadIdx.x); i < x.width; i += kNormThreads) to[i] = row[i] * factor * weight[i];
}

}  // namespace imp::cuda
