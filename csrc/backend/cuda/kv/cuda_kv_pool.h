// The paged KV cache in GPU memory.
#pragma once

#include <cstddef>
#include <memory>

#include "backend/cuda/device/stream.h"
#include "backend/cuda/kv/kv_layer_view.h"
#include "backend/kv_pool.h"

namespace imp::cuda {

// By layer, block, kv head, then K and V: one head's part of a block is contiguous. Each layer has one extra block,
// which padding rows write to.
class CudaKvPool final : public KvPool {
 public:
  // Zeroed. Throws InvalidArgument for an impossible geometry, ResourceExhausted(NO_MEMORY).
  CudaKvPool(const KvGeometry& geometry, Stream& stream);
  // Waits for the device, which may still run a step.
  ~CudaKvPool() override;
  CudaKvPool(const CudaKvPool&) = delete;
  CudaKvPool& operator=(const CudaKvPool&) = delete;
  // Bytes of such a pool. Throws InvalidArgument for an impossible geometry.
  static std::size_t n_bytes(const KvGeometry& geometry);

  const KvGeometry& geometry() const noexcept override { return geometry_; }
  std::size_t n_bytes() const noexcept override { return geometry_.layers.size() * layer_bytes_; }

  std::byte* layer(int layer) const noexcept { return memory_.get() + static_cast<std::size_t>(layer) * layer_bytes_; }
  KvType type() const noexcept { return geometry_.layers.front().types.k; }  // of K and V of every layer
  KvLayerView layer_view(int layer) const noexcept;
  std::size_t block_bytes() const noexcept { return block_bytes_; }  // of one layer
  std::int32_t spare_block() const noexcept { return geometry_.n_blocks; }

 private:
  Stream& stream_;
  KvGeometry geometry_;
  std::size_t block_bytes_;
  std::size_t layer_bytes_;
  std::shared_ptr<std::byte> memory_;
};

}  // namespace imp::cuda
