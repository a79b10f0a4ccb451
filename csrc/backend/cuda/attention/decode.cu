// Decode attention (sequences with one row): host code.
#include "backend/cuda/attention/decode.cuh"

#include "backend/cuda/attention/combine.cuh"
#include "backend/cuda/attention/kernels.h"
#include "backend/cuda/attention/shapes.cuh"
#include "backend/cuda/device/launch.cuh"

namespace imp::cuda {

void attend_single(Stream& stream, KvType type, const AttentionArgs& args, int n_blocks) {
  with_shape(type, args.cache.head_dim, [&]<class Kv, int kDim>() {
    launch(stream, decode_kernel<Kv, kDim>,
           {.grid = static_cast<unsigned>(n_blocks),
            .block = kAttentionThreads,
            .shared_bytes = Decode<Kv, kDim>::kSharedBytes},
           args);
  });
}

void combine_splits(Stream& stream, const AttentionArgs& args) {
  const int parts = ceil_div(args.cache.head_dim, Combine::kColumns);
  launch(stream, combine_kernel,
         {.grid = dim3(static_cast<unsigned>(args.sequences.n_sequences), static_cast<unsigned>(args.n_heads * parts)),
          .block = kWarpSize},
         args);
}

std::size_t decode_shared_bytes(KvType type, int head_dim) {
  std::size_t n = 0;
  with_shape(type, head_dim, [&]<class Kv, int kDim>() { n = Decode<Kv, kDim>::kSharedBytes; });
  return n;
}

}  // namespace imp::cuda
