// The paged KV cache in CPU memory: layout and addresses of panels.
#pragma once

#include <memory>
#include <span>
#include <thread>

#include "backend/cpu/cpu_ops.h"
#include "backend/kv_pool.h"
#include "base/memory_policy.h"

namespace imp::cpu {

// K by layer, block, kv head and panel [head_dim][16 tokens]; then V by layer, block, kv head and panel [16
// tokens][head_dim, padded to 16]. bfloat16 is stored in pairs of neighbours, see SplitPanels. So attention's lanes are
// tokens for K and elements for V, and the heads of consecutive blocks form one long stream. Separate runs of a few KiB
// would be read at a third of the speed.
class CpuKvPool final : public KvPool {
 public:
  // Throws InvalidArgument for an impossible geometry, or ResourceExhausted(NO_MEMORY).
  explicit CpuKvPool(const KvGeometry& geometry, const MemoryOptions& memory = {});

  const KvGeometry& geometry() const noexcept override { return geometry_; }
  // Bytes of such a pool; undefined for an impossible geometry.
  static std::size_t n_bytes(const KvGeometry& geometry);
  std::size_t n_bytes() const noexcept override { return n_bytes(geometry_); }

  KvStorage storage() const noexcept { return storage_; }
  // Panel `panel` of a block: its tokens [16 · panel, 16 · panel + 16).
  std::byte* k_panel(int layer, std::int32_t block, int head, int panel) const noexcept {
    return k_block(layer, block).data() + at(head) * k_head_bytes_ + at(panel) * k_panel_bytes_;
  }
  std::byte* v_panel(int layer, std::int32_t block, int head, int panel) const noexcept {
    return v_block(layer, block).data() + at(head) * v_head_bytes_ + at(panel) * v_panel_bytes_;
  }
  // Distance from a panel to the same panel of the next kv head.
  std::size_t k_head_bytes() const noexcept { return k_head_bytes_; }
  std::size_t v_head_bytes() const noexcept { return v_head_bytes_; }
  // All heads of a block.
  std::span<std::byte> k_block(int layer, std::int32_t block) const noexcept {
    const std::size_t n_bytes = at(geometry_.n_kv_heads) * k_head_bytes_;
    return {memory_.get() + number(layer, block) * n_bytes, n_bytes};
  }
  std::span<std::byte> v_block(int layer, std::int32_t block) const noexcept {
    const std::size_t n_bytes = at(geometry_.n_kv_heads) * v_head_bytes_;
    return {v_memory_ + number(layer, block) * n_bytes, n_bytes};
  }

 private:
  static constexpr std::size_t at(int n) noexcept { return static_cast<std::size_t>(n); }
  std::size_t number(int layer, std::int32_t block) const noexcept {
    return at(layer) * at(geometry_.n_blocks) + at(block);
  }

  KvGeometry geometry_;
  KvStorage storage_;
  std::size_t k_panel_bytes_;
  std::size_t v_panel_bytes_;
  std::size_t k_head_bytes_;  // one head's K in a block
  std::size_t v_head_bytes_;
  std::shared_ptr<std::byte> memory_;
  std::byte* v_memory_;
  std::jthread residency_;  // touches the memory above
};

}  // namespace imp::cpu
