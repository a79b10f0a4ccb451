// The paged KV cache in CPU memory: layout and addresses of panels.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backend/cpu/ops/cpu_ops.h"
#include "backend/kv_pool.h"
#include "base/memory_policy.h"

namespace imp::cpu {

// Blocks lie in slabs of a few MiB. A slab has, by layer, the K of its blocks and then their V; K by block, kv head and
// panel [head_dim][16 tokens], V by block, kv head and panel [16 tokens][head_dim, padded to 16]. bfloat16 is stored in
// pairs of neighbours, see SplitPanels. So attention's lanes are tokens for K and elements for V. The first tokens
// touch few pages, since all layers of a slab are neighbours. The heads of a slab's blocks form one long stream:
// separate runs of a few KiB would be read at a third of the speed.
//
// States by slot and layer: the convolution's inputs [conv_taps][conv_width], oldest first, then a matrix
// [key_dim][value_dim] for each head.
class CpuKvPool final : public KvPool {
 public:
  // Throws InvalidArgument for an impossible geometry, or ResourceExhausted(NO_MEMORY).
  explicit CpuKvPool(const KvGeometry& geometry, const MemoryOptions& memory = {});

  const KvGeometry& geometry() const noexcept override { return geometry_; }
  // Bytes of such a pool; undefined for an impossible geometry.
  static std::size_t n_bytes(const KvGeometry& geometry);
  std::size_t n_bytes() const noexcept override { return n_bytes(geometry_); }

  // Panel `panel` of a block: its tokens [16 · panel, 16 · panel + 16).
  std::byte* k_panel(int layer, std::int32_t block, int head, int panel) const noexcept {
    return panel_of(k_[at(layer)], block, head, panel);
  }
  std::byte* v_panel(int layer, std::int32_t block, int head, int panel) const noexcept {
    return panel_of(v_[at(layer)], block, head, panel);
  }
  // Distance from a panel to the same panel of the next kv head.
  std::size_t k_head_bytes(int layer) const noexcept { return k_[at(layer)].head_bytes; }
  std::size_t v_head_bytes(int layer) const noexcept { return v_[at(layer)].head_bytes; }
  // All heads of a block.
  std::span<std::byte> k_block(int layer, std::int32_t block) const noexcept { return block_of(k_[at(layer)], block); }
  std::span<std::byte> v_block(int layer, std::int32_t block) const noexcept { return block_of(v_[at(layer)], block); }
  float* conv_state(int layer, std::int32_t slot) const noexcept {
    const StateGeometry& state = geometry_.state;
    return state_memory_ + (at(slot) * at(state.n_layers) + at(layer)) * state_floats_;
  }
  float* delta_state(int layer, std::int32_t slot) const noexcept {
    return conv_state(layer, slot) + at(geometry_.state.conv_taps) * at(geometry_.state.conv_width);
  }

 private:
  // The K or the V of one layer.
  struct Part {
    std::size_t begin;  // in a slab
    std::size_t panel_bytes;
    std::size_t head_bytes;   // one head in a block
    std::size_t block_bytes;  // all heads
  };
  Part add_part(KvType type, int n_kv_heads, int width);
  static constexpr std::size_t at(int n) noexcept { return static_cast<std::size_t>(n); }
  std::span<std::byte> block_of(const Part& part, std::int32_t block) const noexcept {
    const std::size_t slab = at(block) >> slab_shift_, in_slab = at(block) & ((std::size_t{1} << slab_shift_) - 1);
    return {memory_.get() + slab * slab_bytes_ + part.begin + in_slab * part.block_bytes, part.block_bytes};
  }
  std::byte* panel_of(const Part& part, std::int32_t block, int head, int panel) const noexcept {
    return block_of(part, block).data() + at(head) * part.head_bytes + at(panel) * part.panel_bytes;
  }

  KvGeometry geometry_;
  std::vector<Part> k_, v_;  // by layer
  int slab_shift_ = 0;       // a slab has 2^slab_shift_ blocks
  std::size_t slab_bytes_ = 0;
  std::shared_ptr<std::byte> memory_;
  float* state_memory_;
  std::size_t state_floats_;  // of a layer in a slot
};

}  // namespace imp::cpu
