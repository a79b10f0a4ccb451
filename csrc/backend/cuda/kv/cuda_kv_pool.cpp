// The size and memory of the cache.
#include "backend/cuda/kv/cuda_kv_pool.h"

#include <bit>
#include <string>

#include "backend/cuda/device/device_memory.h"
#include "backend/cuda/device/runtime.h"
#include "base/error.h"

namespace imp::cuda {
namespace {

const KvGeometry& checked(const KvGeometry& geometry) {
  const auto require = [](bool holds, const char* field, const std::string& found, const char* expected) {
    if (holds) return;
    throw FieldInvalid(std::string("kv ") + field, found + ", expected " + expected);
  };
  const auto require_number = [&](bool holds, const char* field, int found, const char* expected) {
    require(holds, field, std::to_string(found), expected);
  };
  require_number(geometry.n_layers() > 0, "n_layers", geometry.n_layers(), "at least 1");
  require(geometry.has_equal_layers(), "layers", "of unequal sizes or types", "layers of one size and type on cuda");
  const auto [n_kv_heads, head_dim, types] = geometry.layers.front();
  require_number(n_kv_heads > 0, "n_kv_heads", n_kv_heads, "at least 1");
  require_number(head_dim > 0 && head_dim % 8 == 0, "head_dim", head_dim, "a multiple of 8");
  const bool has_kernels = types.k == KvType::f16 || types.k == KvType::bf16 || types.k == KvType::q8_0;
  require(has_kernels && types.k == types.v, "dtype", text_of(types), "f16, bf16 or q8_0 on cuda");
  require_number(types.k != KvType::q8_0 || head_dim % kKvGroup == 0, "head_dim", head_dim,
                 "a multiple of 32, the block of q8_0");
  const int tokens = geometry.block_tokens;
  require_number(tokens >= 16 && tokens <= 256 && std::has_single_bit(static_cast<unsigned>(tokens)), "block_tokens",
                 tokens, "16, 32, 64, 128 or 256");
  require_number(geometry.n_blocks >= 0, "n_blocks", geometry.n_blocks, "at least 0");
  return geometry;
}

std::size_t part_bytes(const KvGeometry& geometry) {
  const KvLayer& layer = geometry.layers.front();
  return static_cast<std::size_t>(geometry.block_tokens) * traits(layer.types.k).row_bytes(layer.head_dim);
}

std::size_t bytes_of_block(const KvGeometry& geometry) {
  return 2 * static_cast<std::size_t>(geometry.layers.front().n_kv_heads) * part_bytes(geometry);
}

std::size_t bytes_of_layer(const KvGeometry& geometry) {
  return (static_cast<std::size_t>(geometry.n_blocks) + 1) * bytes_of_block(geometry);
}

}  // namespace

std::size_t CudaKvPool::n_bytes(const KvGeometry& geometry) {
  return geometry.layers.size() * bytes_of_layer(checked(geometry));
}

CudaKvPool::CudaKvPool(const KvGeometry& geometry, Stream& stream)
    : stream_(stream),
      geometry_(checked(geometry)),
      block_bytes_(bytes_of_block(geometry)),
      layer_bytes_(bytes_of_layer(geometry)),
      memory_(allocate_on_device(n_bytes())) {
  fill(stream, memory_.get(), 0, n_bytes());
}

CudaKvPool::~CudaKvPool() {
  synchronize(stream_);
}

KvLayerView CudaKvPool::layer_view(int layer) const noexcept {
  return {.layer = this->layer(layer),
          .part_bytes = static_cast<int>(part_bytes(geometry_)),
          .n_kv_heads = geometry_.layer(layer).n_kv_heads,
          .head_dim = geometry_.layer(layer).head_dim,
          .token_bits = std::countr_zero(static_cast<unsigned>(geometry_.block_tokens))};
}

}  // namespace imp::cuda
