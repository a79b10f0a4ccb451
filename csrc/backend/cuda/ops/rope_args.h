// The arguments of the kernels that rotate heads.
#pragma once

namespace imp::cuda {

struct RopeShape {
  int head_dim;
  int n_pairs;
  bool is_adjacent;
};

// Normalizes a head before its rotation; without a weight [head_dim] it does not.
struct HeadNorm {
  const float* weight;
  float epsilon;
};

}  // namespace imp::cuda
