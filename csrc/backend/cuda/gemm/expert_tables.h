// Where the matrices of a stack of experts are, as the device reads it.
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
  std::vector<const std::byte*> weights;  // [n_experts]; null where an expert is of another kind
  std::shared_ptr<std::byte> on_device;   // those

  const std::byte* const* table() const noexcept { return reinterpret_cast<const std::byte* const*>(on_device.get()); }
};

// A table for each kind of each stack, found again by the stack's first matrix.
class ExpertTables {
 public:
  // Of stacks of n_experts, one after the other. Those that are here already stay where they are: launches that were
  // kept read them.
  void add(std::span<const Linear* const> weights, int n_experts, Stream& stream);
  // What their tables would take; of the weights only problem and plan are read.
  static std::size_t n_bytes(std::span<const Linear* const> weights, int n_experts);
  std::size_t n_bytes() const noexcept;

  // `first` is the first matrix of a stack that was added.
  std::span<const ExpertKind> kinds_of(const Linear& first) const;

 private:
  std::unordered_map<const Linear*, std::vector<ExpertKind>> stacks_;
};

}  // namespace imp::cuda
