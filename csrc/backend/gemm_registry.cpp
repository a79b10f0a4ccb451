#include "backend/gemm_registry.h"

#include <algorithm>
#include <utility>

#include "backend/gemm_messages.h"
#include "backend/gemm_selector.h"

namespace imp {

GemmRegistry::GemmRegistry(std::span<const GemmKernel> kernels, const DeviceCaps& caps,
                           std::vector<GemmPreference> tuning)
    : kernels_(kernels), caps_(caps), tuning_(std::move(tuning)) {
  require_tuning(kernels_, tuning_);
}

GemmPlan GemmRegistry::plan(const GemmProblem& problem, std::string_view tensor_name,
                            std::span<const GemmOverride> overrides, const PlanPolicy& policy) const {
  Selection selection = Selector(kernels_, caps_, problem, tuning_, policy).require(tensor_name, overrides);
  return {selection.first->layout, std::move(selection.chosen)};
}

std::vector<GemmCandidate> GemmRegistry::explain(const GemmProblem& problem, std::string_view tensor_name,
                                                 std::span<const GemmOverride> overrides,
                                                 const PlanPolicy& policy) const {
  const Selector selector(kernels_, caps_, problem, tuning_, policy);
  const Selection selection = selector.select(tensor_name, overrides);
  std::vector<GemmCandidate> lines;
  for (const GemmKernel& kernel : kernels_) {
    if (!multiplies(kernel, problem.weight)) continue;
    const bool is_chosen =
        std::ranges::find(selection.chosen, &kernel, &PlannedKernel::kernel) != selection.chosen.end();
    lines.push_back(
        {kernel.name, is_chosen, is_chosen ? why(selection, kernel) : why_not(selector, selection, kernel)});
  }
  return lines;
}

std::vector<std::string_view> GemmRegistry::interchangeable(const GemmProblem& problem, int max_m) const {
  const PlanPolicy policy;
  const Selector selector(kernels_, caps_, problem, {}, policy);
  const Selection selection = selector.require("", {});
  std::vector<std::string_view> names;
  for (const GemmKernel& kernel : kernels_) {
    if (multiplies(kernel, problem.weight) && same_sums(kernel, *selection.first) && kernel.max_m >= max_m &&
        selector.refusal(kernel).empty()) {
      names.push_back(kernel.name);
    }
  }
  return names;
}

}  // namespace imp
