// How much memory the cache takes.
#include "backend/kv_pool.h"

namespace imp {

std::size_t kv_block_bytes(const KvGeometry& geometry) {
  const auto size = [](int n) { return static_cast<std::size_t>(n); };
  const int v_width = (geometry.head_dim + 15) / 16 * 16;  // rows of V are padded to whole vectors
  // Of a geometry that no pool takes, nothing.
  const auto row = [&](int width) { return static_cast<std::size_t>(row_bytes(geometry.dtype, width).value_or(0)); };
  return size(geometry.n_layers) * size(geometry.n_kv_heads) * size(geometry.block_tokens) *
         (row(geometry.head_dim) + row(v_width));
}

}  // namespace imp
