// How much memory the cache takes.
#include "backend/kv_pool.h"

namespace imp {

std::size_t kv_block_bytes(const KvGeometry& geometry) {
  const auto size = [](int n) { return static_cast<std::size_t>(n); };
  const std::size_t element_bytes = geometry.dtype == DType::F32 ? 4 : 2;
  const std::size_t v_width = (size(geometry.head_dim) + 15) / 16 * 16;  // rows of V are padded to whole vectors
  return size(geometry.n_layers) * size(geometry.n_kv_heads) * size(geometry.block_tokens) *
         (size(geometry.head_dim) + v_width) * element_bytes;
}

}  // namespace imp
