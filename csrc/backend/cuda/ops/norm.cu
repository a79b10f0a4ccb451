// RMS normalization: host code.
#include "backend/cuda/ops/norm.cuh"

#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/ops/cuda_ops.h"
#include "base/error.h"

namespace imp::cuda {
namespace {

template <bool kAdds>
void norm_rows(Stream& stream, Rows x, Rows y, const float* weight, float epsilon, Rows out,
               const PreparedRows& along) {
  const LaunchShape shape = {.grid = static_cast<unsigned>(x.n_rows), .block = kNormThreads};
  const auto run = [&](auto kernel) {
    const NormAlong to = {along.rows, activation_row_bytes(along.format, x.width),
                          static_cast<int>(padded_depth(x.width))};
    launch(stream, kernel, shape, x, y, weight, epsilon, out, to);
  };
  switch (along.format) {
    case ActivationFormat::q8_rows:
      return run(rms_norm_kernel<kAdds, ActivationFormat::q8_rows>);
    case ActivationFormat::bf16_rows:
      return run(rms_norm_kernel<kAdds, ActivationFormat::bf16_rows>);
    default:
      IMP_CHECK(along.format == ActivationFormat::f32);
      return run(rms_norm_kernel<kAdds, ActivationFormat::f32>);
  }
}

}  // namespace

void rms_norm(Stream& stream, Rows x, const float* weight, float epsilon, Rows out, const PreparedRows& along) {
  norm_rows<false>(stream, x, {}, weight, epsilon, out, along);
}

void add_norm(Stream& stream, Rows x, Rows y, const float* weight, float epsilon, Rows out, const PreparedRows& along) {
  norm_rows<true>(stream, x, y, weight, epsilon, out, along);
}

}  // namespace imp::cuda
