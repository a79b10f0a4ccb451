// New keys and values on their way into the cache: the host's side.
#include "backend/cuda/kv_append.cuh"

#include "backend/cuda/attention_kernels.h"
#include "backend/cuda/launch.cuh"

namespace imp::cuda {

void append_rows(Stream& stream, DType type, const KvPlaces& cache, const SequencesOnDevice& sequences, Rows k,
                 Rows v) {
  const LaunchShape shape = {.grid = static_cast<unsigned>(k.n_rows), .block = kAppendThreads};
  if (type == DType::F16) launch(stream, append_kernel<KvF16>, shape, cache, sequences, k, v);
  if (type == DType::BF16) launch(stream, append_kernel<KvBf16>, shape, cache, sequences, k, v);
  if (type == DType::Q8_0) launch(stream, append_kernel<KvQ8>, shape, cache, sequences, k, v);
}

}  // namespace imp::cuda
