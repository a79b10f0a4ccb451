// New keys and values on their way into the cache: the host's side.
#include "backend/cuda/kv_append.cuh"

#include "backend/cuda/attention_kernels.h"
#include "backend/cuda/launch.cuh"

namespace imp::cuda {

namespace {

constexpr int kWarps = kAppendThreads / kWarpSize;

LaunchShape shape_for(int n_heads) {
  return {.grid = static_cast<unsigned>((n_heads + kWarps - 1) / kWarps), .block = kAppendThreads};
}

}  // namespace

void append_rows(Stream& stream, DType type, const KvPlaces& cache, const SequencesOnDevice& sequences, Rows k,
                 Rows v) {
  const LaunchShape shape = shape_for(k.n_rows * 2 * cache.n_kv_heads);
  if (type == DType::F16) launch(stream, append_kernel<KvF16>, shape, cache, sequences, k, v);
  if (type == DType::BF16) launch(stream, append_kernel<KvBf16>, shape, cache, sequences, k, v);
  if (type == DType::Q8_0) launch(stream, append_kernel<KvQ8>, shape, cache, sequences, k, v);
}

void rope_append_rows(Stream& stream, DType type, const RopeAppendArgs& args) {
  const int n_heads = args.q.width / args.cache.head_dim + 2 * args.cache.n_kv_heads;
  const LaunchShape shape = shape_for(args.q.n_rows * n_heads);
  if (type == DType::F16) launch(stream, rope_append_kernel<KvF16>, shape, args);
  if (type == DType::BF16) launch(stream, rope_append_kernel<KvBf16>, shape, args);
  if (type == DType::Q8_0) launch(stream, rope_append_kernel<KvQ8>, shape, args);
}

}  // namespace imp::cuda
