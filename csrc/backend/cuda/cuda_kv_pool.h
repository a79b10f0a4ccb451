// The cache in the device's memory: how keys and values are laid out, and where each block lies.
#pragma once

#include <cstddef>
#include <memory>

#include "backend/kv_pool.h"

namespace imp::cuda {

// By layer, block, kv head, then K [tokens][head_dim] and V [tokens][head_dim]: one head's page of a block is
// contiguous. Behind the blocks of each layer lies one more, which rows that belong to no sequence write to.
class CudaKvPool final : public KvPool {
 public:
  // Throws InvalidArgument for a geometry that cannot be, ResourceExhausted(NO_MEMORY).
  explicit CudaKvPool(const KvGeometry& geometry);

  const KvGeometry& geometry() const noexcept override { return geometry_; }
  std::size_t n_bytes() const noexcept override;

  std::byte* layer(int layer) const noexcept { return memory_.get() + static_cast<std::size_t>(layer) * layer_bytes_; }
  std::size_t layer_bytes() const noexcept { return layer_bytes_; }
  std::size_t block_bytes() const noexcept { return block_bytes_; }  // of one layer
  std::int32_t spare_block() const noexcept { return geometry_.n_blocks; }

 private:
  KvGeometry geometry_;
  std::size_t block_bytes_ = 0;
  std::size_t layer_bytes_ = 0;
  std::shared_ptr<std::byte> memory_;
};

}  // namespace imp::cuda
