// Selects the instance of an attention kernel for a cache type and a head size.
#pragma once

#include "backend/cuda/kv/kv_types.cuh"
#include "backend/kv_types.h"

namespace imp::cuda {

// Calls run<Kv, kDim>(). head_dim is at most 256; sizes between the instances are padded with zeros.
template <class Run>
void with_shape(KvType type, int head_dim, const Run& run) {
  with_kv_type(type, [&]<class Kv>() {
    if (head_dim <= 64) return run.template operator()<Kv, 64>();
    if (head_dim <= 128) return run.template operator()<Kv, 128>();
    run.template operator()<Kv, 256>();
  });
}

}  // namespace imp::cuda
