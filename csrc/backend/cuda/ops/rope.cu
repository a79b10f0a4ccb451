// Rotary positions: host code.
#include "backend/cuda/ops/rope.cuh"

#include <algorithm>

#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/ops/cuda_ops.h"
#include "base/ceil_div.h"

namespace imp::cuda {

void rope_angles(Stream& stream, const std::int32_t* positions, int n, std::span<const double> frequencies,
                 float magnitude, Rows out) {
  const auto n_pairs = static_cast<int>(frequencies.size());
  for (int first = 0; first < n_pairs; first += Frequencies::kMost) {
    const int n_here = std::min(Frequencies::kMost, n_pairs - first);
    Frequencies piece{};
    std::copy_n(frequencies.begin() + first, n_here, piece.of);
    launch(stream, rope_angles_kernel, {.grid = static_cast<unsigned>(n), .block = kAngleThreads}, positions, piece,
           first, n_here, n_pairs, magnitude, out);
  }
}

void rope(Stream& stream, Rows x, int head_dim, const float* norm_weight, float epsilon, RopeStyle style, int n_pairs,
          Rows angles) {
  constexpr int kWarps = kRopeThreads / kWarpSize;
  const int n_heads = x.n_rows * (x.width / head_dim);
  const RopeShape shape = {head_dim, n_pairs, style == RopeStyle::adjacent};
  launch(stream, rope_kernel, {.grid = static_cast<unsigned>(ceil_div(n_heads, kWarps)), .block = kRopeThreads}, x,
         shape, HeadNorm{norm_weight, epsilon}, angles);
}

}  // namespace imp::cuda
