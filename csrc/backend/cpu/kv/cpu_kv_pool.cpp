// The cache's sizes and its memory.
#include "backend/cpu/kv/cpu_kv_pool.h"

#include <algorithm>
#include <string>

#include "base/arena.h"
#include "base/error.h"

namespace imp::cpu {
namespace {

const KvGeometry& checked(const KvGeometry& geometry) {
  const auto require = [](bool holds, const char* field, int found, const char* expected) {
    if (holds) return;
    throw FieldInvalid(std::string("kv ") + field, std::to_string(found) + ", expected " + expected);
  };
  require(geometry.n_layers() > 0, "n_layers", geometry.n_layers(), "at least 1");
  for (const auto& [n_kv_heads, head_dim, types] : geometry.layers) {
    require(n_kv_heads > 0, "n_kv_heads", n_kv_heads, "at least 1");
    require(head_dim > 0 && head_dim % 8 == 0, "head_dim", head_dim, "a multiple of 8");
    const bool has_blocks = traits(types.k).is_quantized || traits(types.v).is_quantized;
    require(!has_blocks || head_dim % kKvBlock == 0, "head_dim", head_dim,
            "a multiple of 32, the block of quantized types");
  }
  require(geometry.block_tokens > 0 && geometry.block_tokens % kPanelTokens == 0 &&
              kSplitTokens % geometry.block_tokens == 0,
          "block_tokens", geometry.block_tokens, "16, 32, 64, 128 or 256");
  require(geometry.n_blocks >= 0, "n_blocks", geometry.n_blocks, "at least 0");
  require(geometry.state.n_slots >= 0, "state slots", geometry.state.n_slots, "at least 0");
  return geometry;
}

// Two huge pages.
constexpr std::size_t kSlabBytes = std::size_t{4} << 20;

std::size_t state_bytes(const StateGeometry& state) {
  return static_cast<std::size_t>(state.n_slots) * state.slot_bytes();
}

}  // namespace

CpuKvPool::CpuKvPool(const KvGeometry& geometry, const MemoryOptions& memory) : geometry_(checked(geometry)) {
  const std::size_t n_blocks = at(geometry_.n_blocks);
  const std::size_t block_bytes = n_blocks == 0 ? 0 : (n_bytes() - state_bytes(geometry_.state)) / n_blocks;
  while ((block_bytes << (slab_shift_ + 1)) <= kSlabBytes && (std::size_t{1} << slab_shift_) < n_blocks) ++slab_shift_;
  for (const KvLayer& layer : geometry_.layers) {
    k_.push_back(add_part(layer.types.k, layer.n_kv_heads, layer.head_dim));
    v_.push_back(add_part(layer.types.v, layer.n_kv_heads, padded_to_lanes(layer.head_dim)));
  }
  IMP_CHECK(n_blocks == 0 || slab_bytes_ == block_bytes << slab_shift_);
  const std::size_t n_slabs = ceil_div(n_blocks, std::size_t{1} << slab_shift_);
  // The system gives memory for the pages that are written, so the blocks that the last slab lacks cost nothing.
  const std::size_t kv_bytes = n_slabs * slab_bytes_, all_bytes = kv_bytes + state_bytes(geometry_.state);
  memory_ = Arena(all_bytes, memory).allocate(all_bytes);
  state_memory_ = reinterpret_cast<float*>(memory_.get() + kv_bytes);
  state_floats_ = geometry_.state.slot_bytes() / sizeof(float) / at(std::max(1, geometry_.state.n_layers));
}

// Appends the K or V of a layer to the slab.
CpuKvPool::Part CpuKvPool::add_part(KvType type, int n_kv_heads, int width) {
  const std::size_t panel_bytes = kPanelTokens * traits(type).row_bytes(width);
  const std::size_t head_bytes = at(geometry_.block_tokens / kPanelTokens) * panel_bytes;
  const Part part = {.begin = slab_bytes_,
                     .panel_bytes = panel_bytes,
                     .head_bytes = head_bytes,
                     .block_bytes = at(n_kv_heads) * head_bytes};
  slab_bytes_ += part.block_bytes << slab_shift_;
  return part;
}

std::size_t CpuKvPool::n_bytes(const KvGeometry& geometry) {
  std::size_t token = 0;
  for (const auto& [n_kv_heads, head_dim, types] : geometry.layers) {
    token +=
        at(n_kv_heads) * (traits(types.k).row_bytes(head_dim) + traits(types.v).row_bytes(padded_to_lanes(head_dim)));
  }
  return at(geometry.n_blocks) * at(geometry.block_tokens) * token + state_bytes(geometry.state);
}

}  // namespace imp::cpu
