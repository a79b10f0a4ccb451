// RMS normalization of runs of elements ("Root Mean Square Layer Normalization"): device code.
#pragma once

#include "backend/cuda/device/arch.cuh"
#include "backend/cuda/device/warp.cuh"
#include "backend/cuda/gemm/activation_elements.cuh"
#include "backend/rows.h"

namespace imp::cuda {

constexpr int kNormThreads = 256;

// The rows in the format that the next product reads, written along with the rows.
struct NormAlong {
  std::byte* rows = nullptr;
  std::int64_t row_bytes = 0;
  int k_padded = 0;
};

// One block per row. With y, adds x += y first. out may be x. kAlong is the format that is also written, or f32 for
// none.
template <bool kAdds, ActivationFormat kAlong>
__global__ void __launch_bounds__(kNormThreads)
    rms_norm_kernel(Rows x, Rows y, const float* weight, float epsilon, Rows out, NormAlong along) {
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
  std::byte* const to_along = along.rows + blockIdx.x * along.row_bytes;
  // Each thread reads the elements that it wrote. Whole warps continue to the end of the last tile.
  const int end = kAlong == ActivationFormat::f32 ? x.width : along.k_padded;
  for (int i = static_cast<int>(threadIdx.x); i < end; i += kNormThreads) {
    const float value = i < x.width ? row[i] * factor * weight[i] : 0.0F;
    if (i < x.width) to[i] = value;
    if constexpr (kAlong == ActivationFormat::q8_rows) put_quantized(value, i, along.k_padded, to_along);
    if constexpr (kAlong == ActivationFormat::bf16_rows) put_rounded(value, i, to_along);
  }
}

}  // namespace imp::cuda
