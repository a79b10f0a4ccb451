// Tables of the addresses of experts' matrices on the device.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "backend/cuda/device/stream.h"
#include "backend/gemm_registry.h"

namespace imp {
class Linear;
}  // namespace imp

namespace imp::cuda {

// The experts of a stack that have one type and one plan.
struct ExpertKind {
  const Linear* first = nullptr;
  std::vector<const std::byte*> weights;  // [n_experts]; null for an expert of another kind
  std::shared_ptr<std::byte> on_device;   // device copy of `weights`

  const std::byte* const* table() const noexcept { return reinterpret_cast<const std::byte* const*>(on_device.get()); }
};

// A table for each kind of each stack. The stack's first matrix is the key.
class ExpertTables {
 public:
  // Adds stacks of n_experts, one after the other. Existing tables never move: captured launches read them.
  void add(std::span<const Linear* const> weights, int n_experts, Stream& stream);
  // Bytes of their tables. Reads only the problem and the plan of each weight.
  static std::size_t n_bytes(std::span<const Linear* const> weights, int n_experts);
  std::size_t n_bytes() const noexcept;

  // `first` is the first matrix of a stack that was added.
  std::span<const ExpertKind> kinds_of(const Linear& first) const;

 private:
  std::unordered_map<const Linear*, std::vector<ExpertKind>> stacks_;
};

}  // namespace imp::cuda
