// Writes new keys and values to the cache: host code.
#include "backend/cuda/kv/kv_append.cuh"

#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/kv/kv_append.h"
#include "base/ceil_div.h"

namespace imp::cuda {
namespace {

constexpr int kWarps = kAppendThreads / kWarpSize;

LaunchShape shape_for(int n_heads) {
  return {.grid = static_cast<unsigned>(ceil_div(n_heads, kWarps)), .block = kAppendThreads};
}

}  // namespace

void append_rows(Stream& stream, DType type, const KvPlaces& cache, const SequencesOnDevice& sequences, Rows k,
                 Rows v) {
  const LaunchShape shape = shape_for(k.n_rows * 2 * cache.n_kv_heads);
  with_kv_type(type, [&]<class Kv>() { launch(stream, append_kernel<Kv>, shape, cache, sequences, k, v); });
}

void rope_append_rows(Stream& stream, DType type, const RopeAppendArgs& args) {
  const int n_heads = args.q.width / args.cache.head_dim + 2 * args.cache.n_kv_heads;
  const LaunchShape shape = shape_for(args.q.n_rows * n_heads);
  with_kv_type(type, [&]<class Kv>() { launch(stream, rope_append_kernel<Kv>, shape, args); });
}

}  // namespace imp::cuda
