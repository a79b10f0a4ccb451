#include "model/weights/op_scratch.h"

#include <vector>

namespace imp {
namespace {

// A matrix that is not loaded yet, for backends that need only its size and its kernels.
class PlannedLinear final : public Linear {
 public:
  explicit PlannedLinear(const PlannedWeight& weight) : weight_(weight) {}
  const GemmProblem& problem() const noexcept override { return weight_.problem; }
  const GemmPlan& plan() const noexcept override { return weight_.plan; }
  std::size_t n_bytes() const noexcept override { return weight_.n_bytes; }
  std::span<const std::byte> packed() const noexcept override { return {}; }

 private:
  const PlannedWeight& weight_;
};

}  // namespace

std::size_t op_scratch_bytes(WorkspaceNeeds needs, const WeightPlan& plan, const Backend& backend) {
  std::vector<PlannedLinear> matrices;
  matrices.reserve(plan.weights.size());
  for (const PlannedWeight& weight : plan.weights) {
    if (weight.use == WeightUse::vector) continue;
    matrices.emplace_back(weight);
    auto& uses = weight.use == WeightUse::expert ? needs.expert_weights : needs.weights;
    uses.insert(uses.end(), static_cast<std::size_t>(weight.n_matrices), &matrices.back());
  }
  return backend.scratch_bytes(needs);
}

}  // namespace imp
