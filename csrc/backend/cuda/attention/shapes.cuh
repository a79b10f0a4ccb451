// Which instance of a kernel of attention serves a type and a head.
#pragma once

#include "backend/cuda/kv/kv_types.cuh"
#include "tensor/dtype.h"

namespace imp::cuda {

// Calls run<Kv, kDim>(): head_dim is at most 256, and what is between the sizes is filled up with zeros.
template <class Run>
void with_shape(DType type, int head_dim, const Run& run) {
  with_kv_type(type, [&]<class Kv>() {
    if (head_dim <= 64) return run.template operator()<Kv, 64>();
    if (head_dim <= 128) return run.template operator()<Kv, 128>();
    run.template operator()<Kv, 256>();
  });
}

}  // namespace imp::cuda
