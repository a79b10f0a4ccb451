// The cache's sizes and its memory.
#include "backend/cpu/cpu_kv_pool.h"

#include <string>

#include "backend/cpu/kv_residency.h"
#include "base/arena.h"
#include "base/error.h"

namespace imp::cpu {
namespace {

KvStorage storage_of(DType dtype) {
  if (dtype == DType::F32) return kv_f32;
  if (dtype == DType::F16) return kv_f16;
  if (dtype == DType::BF16) return kv_bf16;
  if (dtype == DType::Q8_0) return kv_q8_0;
  throw FieldInvalid("kv dtype", std::string(traits(dtype).name) + ", expected f32, f16, bf16 or q8_0");
}

const KvGeometry& checked(const KvGeometry& geometry) {
  const auto require = [](bool holds, const char* field, int found, const char* expected) {
    if (holds) return;
    throw FieldInvalid(std::string("kv ") + field, std::to_string(found) + ", expected " + expected);
  };
  require(geometry.n_layers > 0, "n_layers", geometry.n_layers, "at least 1");
  require(geometry.n_kv_heads > 0, "n_kv_heads", geometry.n_kv_heads, "at least 1");
  require(geometry.head_dim > 0 && geometry.head_dim % 8 == 0, "head_dim", geometry.head_dim, "a multiple of 8");
  require(geometry.dtype != DType::Q8_0 || geometry.head_dim % 32 == 0, "head_dim", geometry.head_dim,
          "a multiple of 32, as q8_0 has its blocks");
  require(geometry.block_tokens > 0 && geometry.block_tokens % kPanelTokens == 0 &&
              kSplitTokens % geometry.block_tokens == 0,
          "block_tokens", geometry.block_tokens, "16, 32, 64, 128 or 256");
  require(geometry.n_blocks >= 0, "n_blocks", geometry.n_blocks, "at least 0");
  return geometry;
}

}  // namespace

CpuKvPool::CpuKvPool(const KvGeometry& geometry, const MemoryOptions& memory)
    : geometry_(checked(geometry)), storage_(storage_of(geometry.dtype)) {
  const auto panel_bytes = [&](int width) {
    return static_cast<std::size_t>(kPanelTokens * *row_bytes(geometry_.dtype, width));
  };
  const auto panels = static_cast<std::size_t>(geometry_.block_tokens / kPanelTokens);
  k_panel_bytes_ = panel_bytes(geometry_.head_dim);
  v_panel_bytes_ = panel_bytes(padded_to_lanes(geometry_.head_dim));
  k_head_bytes_ = panels * k_panel_bytes_;
  v_head_bytes_ = panels * v_panel_bytes_;
  memory_ = Arena(n_bytes(), memory).allocate(n_bytes());
  v_memory_ = memory_.get() + number(geometry_.n_layers, 0) * at(geometry_.n_kv_heads) * k_head_bytes_;
  residency_ = make_resident(*this);
}

std::size_t CpuKvPool::n_bytes(const KvGeometry& geometry) {
  const auto row = [&](int width) { return static_cast<std::size_t>(row_bytes(geometry.dtype, width).value_or(0)); };
  const std::size_t token = row(geometry.head_dim) + row(padded_to_lanes(geometry.head_dim));
  return at(geometry.n_layers) * at(geometry.n_blocks) * at(geometry.n_kv_heads) * at(geometry.block_tokens) * token;
}

}  // namespace imp::cpu
