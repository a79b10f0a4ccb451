// What the kernels that rotate heads are given.
#pragma once

#include "backend/cuda/inputs.h"
#include "backend/cuda/kv_places.h"
#include "backend/rows.h"

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

// Rows of q, k, v and angles, and where k and v are kept.
struct RopeAppendArgs {
  Rows q, k, v, angles;
  HeadNorm q_norm, k_norm;
  RopeShape rope;
  KvPlaces cache;
  SequencesOnDevice sequences;
};

}  // namespace imp::cuda
