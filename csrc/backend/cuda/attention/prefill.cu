// Prefill attention (sequences with several rows): host code.
#include "backend/cuda/attention/prefill.cuh"

#include "backend/cuda/attention/kernels.h"
#include "backend/cuda/attention/shapes.cuh"
#include "backend/cuda/device/launch.cuh"

namespace imp::cuda {

void attend_many(Stream& stream, KvType type, const AttentionArgs& args, int n_tiles) {
  with_shape(type, args.cache.head_dim, [&]<class Kv, int kDim>() {
    using Shape = Prefill<Kv, kDim>;
    launch(stream, prefill_kernel<Kv, kDim>,
           {.grid = dim3(static_cast<unsigned>(n_tiles), static_cast<unsigned>(args.cache.n_kv_heads)),
            .block = kAttentionThreads,
            .shared_bytes = Shape::kSharedBytes},
           args);
  });
}

int prefill_rows(int head_dim) {
  int n = 0;
  with_shape(KvType::f16, head_dim, [&]<class Kv, int kDim>() { n = Prefill<Kv, kDim>::kBlockRows; });
  return n;
}

std::size_t prefill_shared_bytes(KvType type, int head_dim) {
  std::size_t n = 0;
  with_shape(type, head_dim, [&]<class Kv, int kDim>() { n = Prefill<Kv, kDim>::kSharedBytes; });
  return n;
}

}  // namespace imp::cuda
