// What the kernels that rotate heads are given.
#pragma once

namespace imp::cuda {

struct RopeShape {
  int head_dim;
  int n_pairs;
  bool is_adjacent;
};

// How a head is normalized before it is rotated; not at all without a weight [head_dim].
struct HeadNorm {
  const float* weight;
  float epsilon;
};

}  // namespace imp::cuda
