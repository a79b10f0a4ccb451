// The cache in memory on the CPU: how keys and values are laid out, and where each panel lies.
#pragma once

#include <memory>

#include "backend/cpu/cpu_ops.h"
#include "backend/kv_pool.h"

namespace imp::cpu {

// For each layer, block and kv head in turn: K as panels [head_dim][16 tokens], then V as panels
// [16 tokens][head_dim, padded to 16]. So attention's lanes are tokens for K and elements for V, and what one head
// reads of a block is one contiguous run.
class CpuKvPool final : public KvPool {
 public:
  // Throws InvalidArgument for a geometry that cannot be, ResourceExhausted(NO_MEMORY).
  explicit CpuKvPool(const KvGeometry& geometry);

  const KvGeometry& geometry() const noexcept override { return geometry_; }
  std::size_t n_bytes() const noexcept override;

  KvStorage storage() const noexcept { return storage_; }
  // Panel `panel` of a block: its tokens [16 · panel, 16 · panel + 16).
  std::byte* k_panel(int layer, std::int32_t block, int head, int panel) const noexcept {
    return run(layer, block, head) + static_cast<std::size_t>(panel) * k_panel_bytes_;
  }
  std::byte* v_panel(int layer, std::int32_t block, int head, int panel) const noexcept {
    return run(layer, block, head) + k_run_bytes_ + static_cast<std::size_t>(panel) * v_panel_bytes_;
  }
  // All heads' K and V of a block in one layer.
  std::byte* block(int layer, std::int32_t block) const noexcept { return run(layer, block, 0); }
  std::size_t layer_block_bytes() const noexcept { return static_cast<std::size_t>(geometry_.n_kv_heads) * run_bytes_; }

 private:
  std::byte* run(int layer, std::int32_t block, int head) const noexcept {
    const auto blocks = static_cast<std::size_t>(layer) * static_cast<std::size_t>(geometry_.n_blocks) +
                        static_cast<std::size_t>(block);
    return memory_.get() +
           (blocks * static_cast<std::size_t>(geometry_.n_kv_heads) + static_cast<std::size_t>(head)) * run_bytes_;
  }

  KvGeometry geometry_;
  KvStorage storage_;
  std::size_t k_panel_bytes_;
  std::size_t v_panel_bytes_;
  std::size_t k_run_bytes_;  // one head's K of a block
  std::size_t run_bytes_;    // one head's K and V of a block
  std::shared_ptr<std::byte> memory_;
};

}  // namespace imp::cpu
