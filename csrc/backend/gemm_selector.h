// Chooses the kernels of one weight. The plan and its explanation come from the same decisions.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/gemm_registry.h"

namespace imp {

const GemmKernel* find_kernel(std::span<const GemmKernel> kernels, std::string_view name);
bool multiplies(const GemmKernel& kernel, DType weight);
// Whether two kernels give the same bits from the same layout.
bool same_sums(const GemmKernel& a, const GemmKernel& b);
// Throws InvalidArgument unless the tuning is as GemmRegistry requires.
void require_tuning(std::span<const GemmKernel> kernels, std::span<const GemmPreference> tuning);

struct Selection {
  const GemmOverride* override = nullptr;
  const GemmKernel* first = nullptr;       // decides layout, activations and reduction; nullptr if nothing is chosen
  std::vector<PlannedKernel> chosen;       // by ascending max_m
  const GemmPreference* tuning = nullptr;  // the first that applied; nullptr if none did
};

class Selector {
 public:
  Selector(std::span<const GemmKernel> kernels, const DeviceCaps& caps, const GemmProblem& problem,
           std::span<const GemmPreference> tuning, const PlanPolicy& policy)
      : kernels_(kernels), caps_(caps), problem_(problem), tuning_(tuning), policy_(policy) {}

  // Has no kernels if none that fits is validated.
  Selection select(std::string_view tensor_name, std::span<const GemmOverride> overrides) const;
  // Like select(), but throws if it finds none.
  Selection require(std::string_view tensor_name, std::span<const GemmOverride> overrides) const;
  // Why this kernel is not a default choice; empty if it may be.
  std::string refusal(const GemmKernel& kernel) const;
  // Whether a plan that begins with `first` may continue with this kernel.
  bool fits(const GemmKernel& kernel, const GemmKernel& first) const;
  // Why a plan cannot begin with a kernel that fits: no other kernels complete it for every m.
  std::string incomplete(const GemmKernel& first) const;

 private:
  bool is_allowed(const GemmKernel& kernel) const { return kernel.validated || policy_.unvalidated_kernels; }
  bool is_unvalidated_library(const GemmKernel& kernel) const;
  std::string rejection(const GemmKernel& kernel) const;
  int max_rows_of(const GemmKernel& kernel) const;
  const GemmKernel* forced(const GemmOverride& override) const;
  std::vector<PlannedKernel> complete(const GemmKernel& first) const;
  std::vector<PlannedKernel> partial_plan(const GemmKernel& first) const;
  std::vector<PlannedKernel> for_fewer_rows(const GemmKernel& first) const;
  bool may_follow(const GemmKernel& kernel, std::span<const PlannedKernel> chosen, const GemmKernel& first) const;
  void tune(Selection& selection) const;
  template <class Applies>
  std::vector<const GemmKernel*> unvalidated_candidates(const Applies& applies) const;

  std::span<const GemmKernel> kernels_;
  const DeviceCaps& caps_;
  const GemmProblem& problem_;
  std::span<const GemmPreference> tuning_;
  const PlanPolicy& policy_;
};

}  // namespace imp
