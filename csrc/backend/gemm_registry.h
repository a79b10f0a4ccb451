// Kernel selection: makes one plan per weight at load.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/gemm.h"

namespace imp {

// A kernel of a plan. It runs for up to max_m rows, which is at most its own max_m.
struct PlannedKernel {
  const GemmKernel* kernel = nullptr;
  int max_m = kAnyRows;
};

// Which kernels may form a plan.
struct PlanPolicy {
  // All kernels use one activation format and one reduction id, so that the bits of a row do not depend on the batch.
  bool one_reduction = true;
  bool unvalidated_kernels = false;  // chosen like validated ones
};

// The kernels of one weight. The first whose max_m is at least m runs. All share one layout.
struct GemmPlan {
  WeightLayout layout = WeightLayout::file;
  std::vector<PlannedKernel> kernels;  // by ascending max_m; the last takes any m

  const GemmKernel& kernel_for(int m) const noexcept {
    std::size_t i = 0;
    while (kernels[i].max_m < m) ++i;
    return *kernels[i].kernel;
  }
};

// "panel16 q8_block32: q8_0_small up to 8 rows, q8_0_avx2": equal for equal plans in every process.
std::string describe(const GemmPlan& plan);

// A user's choice of kernel from the configuration. `pattern` is a weight type ("q4_k") or a glob over tensor names
// ("blk.*.ffn_down.weight"; * matches any text, ? one character). `kernel` names the kernel. A glob takes precedence
// over a type.
struct GemmOverride {
  std::string pattern;
  std::string kernel;
};

// For weights of a type and up to max_m rows, this kernel is the fastest.
struct GemmPreference {
  DType weight = DType::F32;
  int max_m = kAnyRows;
  std::string kernel;
  std::string processor = {};  // whose table says so; empty for a measurement on this machine
};

// One line of explain(): a candidate, whether the plan uses it, and why or why not.
struct GemmCandidate {
  std::string_view kernel;
  bool accepted = false;
  std::string reason;  // accepted: who decided, and for how many rows
};

class GemmRegistry {
 public:
  // `kernels` is in order of preference. Its last row, `reference`, takes every weight type and any number of rows, and
  // never refuses.
  GemmRegistry(std::span<const GemmKernel> kernels, const DeviceCaps& caps) : kernels_(kernels), caps_(caps) {}
  // `tuning` has the preferences of each type by ascending max_m, the last for any m. Throws InvalidArgument for
  // another order, and for a kernel that is unknown or of another type.
  GemmRegistry(std::span<const GemmKernel> kernels, const DeviceCaps& caps, std::vector<GemmPreference> tuning);

  // The first kernel of a plan decides its layout and its reduction. It is the first in the list that does not refuse
  // and that kernels of the same layout and reduction can complete to every m. The plan continues with such kernels for
  // larger m, in the list's order. If the policy lets reductions mix, only the layout must be the same. The tuning's
  // kernels replace these if all of them fit and share that layout and reduction, so no bit of a result changes.
  // Overrides take precedence over the tuning. A kernel that is not validated is used only if the policy or an override
  // allows it. Throws ModelError(OVERRIDE_INVALID) if an override names a kernel that is unknown (listing those of the
  // weight's type) or that refuses (with its reason), or if two of equal rank disagree. Throws MODEL_UNSUPPORTED, with
  // names, if only unvalidated kernels fit. tensor_name may be empty: then only type names match.
  GemmPlan plan(const GemmProblem& problem, std::string_view tensor_name, std::span<const GemmOverride> overrides,
                const PlanPolicy& policy = {}) const;
  // A line for each kernel that could multiply the weight's type, in the list's order. None is accepted if no kernel
  // that fits is validated. Throws as plan() does for overrides.
  std::vector<GemmCandidate> explain(const GemmProblem& problem, std::string_view tensor_name,
                                     std::span<const GemmOverride> overrides, const PlanPolicy& policy = {}) const;
  // The kernels that a tuning may choose for up to max_m rows of such a weight: those with the bits and the layout of
  // the untuned plan, in the order of the list.
  std::vector<std::string_view> interchangeable(const GemmProblem& problem, int max_m) const;
  std::span<const GemmKernel> kernels() const noexcept { return kernels_; }
  const DeviceCaps& caps() const noexcept { return caps_; }

 private:
  std::span<const GemmKernel> kernels_;
  DeviceCaps caps_;
  std::vector<GemmPreference> tuning_;
};

// Throws ModelError(OVERRIDE_INVALID) for a pattern that is neither a weight type nor matches one of these tensors.
void require_matches(std::span<const GemmOverride> overrides, std::span<const std::string_view> tensor_names);

}  // namespace imp
