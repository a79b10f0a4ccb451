// Rotary positions ("RoFormer: Enhanced Transformer with Rotary Position Embedding").
#include <algorithm>
#include <cstdint>

#include "backend/cuda/device/arch.cuh"
#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/device/warp.cuh"
#include "backend/cuda/ops/cuda_ops.h"
#include "backend/cuda/ops/rotate_head.cuh"
#include "backend/rows.h"
#include "backend/scalar_math.h"
#include "base/ceil_div.h"

namespace imp::cuda {

constexpr int kAngleThreads = 64;
constexpr int kRopeThreads = 128;

// Some of a rope's frequencies, passed by value so that a captured launch keeps them.
struct Frequencies {
  static constexpr int kMax = 128;
  double of[kMax];
};

// One block per row, one thread per pair. In double precision: at position 2^24 the angle in float would be off by a
// whole radian.
static __global__ void __launch_bounds__(kAngleThreads)
    rope_angles_kernel(const std::int32_t* positions, Frequencies frequencies, int first_pair, int n_here, int n_pairs,
                       float magnitude, Rows out) {
  float* const to = out.data + blockIdx.x * out.stride + first_pair;
  for (int i = static_cast<int>(threadIdx.x); i < n_here; i += kAngleThreads) {
    const SinCos angle = sin_cos(static_cast<double>(positions[blockIdx.x]) * frequencies.of[i]);
    to[i] = static_cast<float>(angle.cos * static_cast<double>(magnitude));
    to[n_pairs + i] = static_cast<float>(angle.sin * static_cast<double>(magnitude));
  }
}

// One warp for each head of each row.
static __global__ void __launch_bounds__(kRopeThreads)
    rope_kernel(Rows x, RopeShape shape, HeadNorm norm, Rows angles) {
  const int n_heads = x.width / shape.head_dim;
  const int number = static_cast<int>(blockIdx.x * (kRopeThreads / kWarpSize) + threadIdx.x / kWarpSize);
  if (number >= n_heads * x.n_rows) return;
  const int row = number / n_heads;
  rotate_head(x.data + row * x.stride + number % n_heads * shape.head_dim, shape, norm,
              angles.data + row * angles.stride);
}

void rope_angles(Stream& stream, const std::int32_t* positions, int n, std::span<const double> frequencies,
                 float magnitude, Rows out) {
  const auto n_pairs = static_cast<int>(frequencies.size());
  for (int first = 0; first < n_pairs; first += Frequencies::kMax) {
    const int n_here = std::min(Frequencies::kMax, n_pairs - first);
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
