// Groups a stack's experts by kind.
#include "backend/cuda/gemm/expert_tables.h"

#include <algorithm>

#include "backend/cuda/device/device_memory.h"
#include "backend/cuda/device/runtime.h"
#include "backend/cuda/gemm/cuda_linear.h"
#include "base/error.h"

namespace imp::cuda {
namespace {

bool is_alike(const Linear& a, const Linear& b) {
  const auto same = [](const PlannedKernel& x, const PlannedKernel& y) {
    return x.kernel == y.kernel && x.max_m == y.max_m;
  };
  return a.problem().weight == b.problem().weight && a.plan().layout == b.plan().layout &&
         std::ranges::equal(a.plan().kernels, b.plan().kernels, same);
}

std::size_t table_bytes(std::size_t n_experts) {
  return n_experts * sizeof(const std::byte*);
}

using Stack = std::span<const Linear* const>;

template <class Use>
void for_each_stack(Stack weights, int n_experts, const Use& use) {
  if (weights.empty()) return;
  const auto size = static_cast<std::size_t>(n_experts);
  IMP_CHECK(n_experts > 0 && weights.size() % size == 0);
  for (std::size_t begin = 0; begin < weights.size(); begin += size) use(weights.subspan(begin, size));
}

// The first of each kind.
std::vector<const Linear*> kinds_among(Stack stack) {
  std::vector<const Linear*> firsts;
  for (const Linear* weight : stack) {
    if (std::ranges::none_of(firsts, [&](const Linear* first) { return is_alike(*first, *weight); })) {
      firsts.push_back(weight);
    }
  }
  return firsts;
}

std::vector<ExpertKind> sorted(Stack stack) {
  std::vector<ExpertKind> kinds;
  for (const Linear* first : kinds_among(stack)) {
    ExpertKind& kind = kinds.emplace_back();
    kind.first = first;
    for (const Linear* weight : stack) {
      kind.weights.push_back(is_alike(*first, *weight) ? static_cast<const CudaLinear*>(weight)->bytes() : nullptr);
    }
  }
  return kinds;
}

bool is_same(std::span<const ExpertKind> a, std::span<const ExpertKind> b) {
  return std::ranges::equal(a, b, [](const ExpertKind& x, const ExpertKind& y) { return x.weights == y.weights; });
}

}  // namespace

void ExpertTables::add(Stack weights, int n_experts, Stream& stream) {
  for_each_stack(weights, n_experts, [&](Stack stack) {
    std::vector<ExpertKind> kinds = sorted(stack);
    std::vector<ExpertKind>& here = stacks_[stack.front()];
    if (is_same(here, kinds)) return;
    // Allocates everything before any copy starts.
    for (ExpertKind& kind : kinds) kind.on_device = allocate_on_device(table_bytes(stack.size()));
    here = std::move(kinds);
    for (const ExpertKind& kind : here) {
      copy_to_device(stream, kind.on_device.get(), kind.weights.data(), table_bytes(stack.size()));
    }
  });
  synchronize(stream);
}

std::size_t ExpertTables::n_bytes(Stack weights, int n_experts) {
  std::size_t total = 0;
  for_each_stack(weights, n_experts,
                 [&](Stack stack) { total += kinds_among(stack).size() * table_bytes(stack.size()); });
  return total;
}

std::size_t ExpertTables::n_bytes() const noexcept {
  std::size_t total = 0;
  for (const auto& [first, kinds] : stacks_) {
    for (const ExpertKind& kind : kinds) total += table_bytes(kind.weights.size());
  }
  return total;
}

std::span<const ExpertKind> ExpertTables::kinds_of(const Linear& first) const {
  const auto stack = stacks_.find(&first);
  IMP_CHECK(stack != stacks_.end());
  return stack->second;
}

}  // namespace imp::cuda
