// Root-mean-square normalization: the host's side.
#include "backend/cuda/norm.cuh"

#include "backend/cuda/cuda_ops.h"
#include "backend/cuda/launch.cuh"

namespace imp::cuda {
namespace {

LaunchShape one_block_each(Rows rows) {
  return {.grid = static_cast<unsigned>(rows.n_rows), .block = kNormThreads};
}

}  // namespace

void rms_norm(Stream& stream, Rows x, const float* weight, float epsilon, Rows out) {
  launch(stream, rms_norm_kernel<false>, one_block_each(x), x, Rows{}, weight, epsilon, out);
}

void add_norm(Stream& stream, Rows x, Rows y, const float* weight, float epsilon, Rows out) {
  launch(stream, rms_norm_kernel<true>, one_block_each(x), x, y, weight, epsilon, out);
}

}  // namespace imp::cuda
