// RMS normalization of runs of elements ("Root Mean Square Layer Normalization").
#include "backend/cuda/device/arch.cuh"
#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/device/warp.cuh"
#include "backend/cuda/gemm/activation_elements.cuh"
#include "backend/cuda/ops/cuda_ops.h"
#include "backend/rows.h"
#include "base/error.h"

namespace imp::cuda {

constexpr int kNormThreads = 256;

// The result in the format that the next product reads. The same kernel writes it.
struct FusedRows {
  std::byte* rows = nullptr;
  std::int64_t row_bytes = 0;
  int k_padded = 0;
};

// One block per row. With y, adds x += y first. out may be x. kPrepared is the format that is also written, or f32 for
// none.
template <bool kAdds, ActivationFormat kPrepared>
__global__ void __launch_bounds__(kNormThreads)
    rms_norm_kernel(Rows x, Rows y, const float* weight, float epsilon, Rows out, FusedRows prepared) {
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
  std::byte* const to_prepared = prepared.rows + blockIdx.x * prepared.row_bytes;
  // Each thread reads the elements that it wrote. Whole warps continue to the end of the last tile.
  const int end = kPrepared == ActivationFormat::f32 ? x.width : prepared.k_padded;
  for (int i = static_cast<int>(threadIdx.x); i < end; i += kNormThreads) {
    const float value = i < x.width ? row[i] * factor * weight[i] : 0.0F;
    if (i < x.width) to[i] = value;
    if constexpr (kPrepared == ActivationFormat::q8_rows) put_quantized(value, i, prepared.k_padded, to_prepared);
    if constexpr (kPrepared == ActivationFormat::bf16_rows) put_rounded(value, i, to_prepared);
  }
}

namespace {

template <bool kAdds>
void norm_rows(Stream& stream, Rows x, Rows y, const float* weight, float epsilon, Rows out,
               const PreparedRows& prepared) {
  const LaunchShape shape = {.grid = static_cast<unsigned>(x.n_rows), .block = kNormThreads};
  const auto run = [&](auto kernel) {
    const FusedRows to = {prepared.rows, activation_row_bytes(prepared.format, x.width),
                          static_cast<int>(padded_depth(x.width))};
    launch(stream, kernel, shape, x, y, weight, epsilon, out, to);
  };
  switch (prepared.format) {
    case ActivationFormat::q8_rows:
      return run(rms_norm_kernel<kAdds, ActivationFormat::q8_rows>);
    case ActivationFormat::bf16_rows:
      return run(rms_norm_kernel<kAdds, ActivationFormat::bf16_rows>);
    default:
      IMP_CHECK(prepared.format == ActivationFormat::f32);
      return run(rms_norm_kernel<kAdds, ActivationFormat::f32>);
  }
}

}  // namespace

void rms_norm(Stream& stream, Rows x, const float* weight, float epsilon, Rows out, const PreparedRows& prepared) {
  norm_rows<false>(stream, x, {}, weight, epsilon, out, prepared);
}

void add_norm(Stream& stream, Rows x, Rows y, const float* weight, float epsilon, Rows out,
              const PreparedRows& prepared) {
  norm_rows<true>(stream, x, y, weight, epsilon, out, prepared);
}

}  // namespace imp::cuda
