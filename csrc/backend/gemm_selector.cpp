#include "backend/gemm_selector.h"

#include <algorithm>
#include <utility>

#include "backend/gemm_messages.h"
#include "backend/gemm_overrides.h"
#include "base/error.h"

namespace imp {

const GemmKernel* find_kernel(std::span<const GemmKernel> kernels, std::string_view name) {
  const auto found = std::ranges::find(kernels, name, &GemmKernel::name);
  return found == kernels.end() ? nullptr : &*found;
}

bool multiplies(const GemmKernel& kernel, DType weight) {
  return kernel.any_weight || kernel.weight == weight;
}

bool same_sums(const GemmKernel& a, const GemmKernel& b) {
  return a.layout == b.layout && a.activations == b.activations && a.reduction == b.reduction;
}

void require_tuning(std::span<const GemmKernel> kernels, std::span<const GemmPreference> tuning) {
  for (const GemmPreference& preference : tuning) {
    const GemmKernel* const kernel = find_kernel(kernels, preference.kernel);
    if (kernel == nullptr) refuse_tuning(preference, "no kernel " + preference.kernel + "; imp kernels lists them");
    if (!multiplies(*kernel, preference.weight)) {
      refuse_tuning(preference, preference.kernel + " multiplies " + std::string(traits(kernel->weight).name));
    }
  }
  for (std::size_t i = 0; i < tuning.size(); ++i) {
    const bool is_last = i + 1 == tuning.size() || tuning[i + 1].weight != tuning[i].weight;
    const bool ascends = is_last ? tuning[i].max_m == kAnyRows : tuning[i].max_m < tuning[i + 1].max_m;
    if (!ascends || tuning[i].max_m < 1) {
      refuse_tuning(tuning[i], "the row limits do not ascend, or the last one is not None (no limit)");
    }
  }
}

// The kernels that satisfy `applies` and would be allowed if they were validated.
template <class Applies>
std::vector<const GemmKernel*> Selector::unvalidated_candidates(const Applies& applies) const {
  std::vector<const GemmKernel*> found;
  for (const GemmKernel& kernel : kernels_) {
    if (!multiplies(kernel, problem_.weight) || is_allowed(kernel) || is_unvalidated_library(kernel)) continue;
    if (applies(kernel) && rejection(kernel).empty()) found.push_back(&kernel);
  }
  return found;
}

Selection Selector::select(std::string_view tensor_name, std::span<const GemmOverride> overrides) const {
  require_known(kernels_, overrides);
  Selection selection;
  selection.override = override_for(overrides, problem_.weight, tensor_name);
  if (selection.override != nullptr) {
    selection.first = forced(*selection.override);
    selection.chosen = complete(*selection.first);
    if (selection.chosen.empty()) refuse(*selection.override, incomplete(*selection.first));
    return selection;
  }
  for (const GemmKernel& kernel : kernels_) {
    if (!multiplies(kernel, problem_.weight) || !refusal(kernel).empty()) continue;
    std::vector<PlannedKernel> chosen = complete(kernel);
    if (chosen.empty()) continue;
    selection.first = &kernel;
    selection.chosen = std::move(chosen);
    tune(selection);
    break;
  }
  return selection;
}

Selection Selector::require(std::string_view tensor_name, std::span<const GemmOverride> overrides) const {
  Selection selection = select(tensor_name, overrides);
  if (!selection.chosen.empty()) return selection;
  const auto unvalidated = unvalidated_candidates([](const GemmKernel&) { return true; });
  IMP_CHECK(!unvalidated.empty());  // else the list does not end in one that takes everything
  refuse_unvalidated(problem_.weight, unvalidated);
}

std::string Selector::refusal(const GemmKernel& kernel) const {
  if (is_unvalidated_library(kernel)) return kUnvalidated;
  if (std::string reason = rejection(kernel); !reason.empty()) return reason;
  if (!is_allowed(kernel)) return kUnvalidated;
  return {};
}

// The kernels for fewer rows than `first` is tuned for, then `first`, then kernels of its layout and reduction for
// larger m. Empty if they do not reach every m.
std::vector<PlannedKernel> Selector::complete(const GemmKernel& first) const {
  std::vector<PlannedKernel> chosen = partial_plan(first);
  if (chosen.back().kernel->max_m == kAnyRows) chosen.back().max_m = kAnyRows;
  if (chosen.back().max_m != kAnyRows) chosen.clear();
  return chosen;
}

bool Selector::fits(const GemmKernel& kernel, const GemmKernel& first) const {
  return policy_.one_reduction ? same_sums(kernel, first) : kernel.layout == first.layout;
}

// Replaces the chosen kernels with those of the tuning, all or none.
void Selector::tune(Selection& selection) const {
  std::vector<PlannedKernel> tuned;
  const GemmPreference* first = nullptr;
  for (const GemmPreference& preference : tuning_) {
    if (preference.weight != problem_.weight) continue;
    if (first == nullptr) first = &preference;
    const GemmKernel* const kernel = find_kernel(kernels_, preference.kernel);
    if (!same_sums(*kernel, *selection.first) || !refusal(*kernel).empty() || kernel->max_m < preference.max_m) return;
    if (!tuned.empty() && tuned.back().kernel == kernel) {
      tuned.back().max_m = preference.max_m;
    } else {
      tuned.push_back({kernel, preference.max_m});
    }
  }
  if (tuned.empty()) return;
  selection.chosen = std::move(tuned);
  selection.tuning = first;
}

std::string Selector::incomplete(const GemmKernel& first) const {
  const int reached = std::max(first.max_m, partial_plan(first).back().max_m);
  const auto unvalidated = unvalidated_candidates(
      [&](const GemmKernel& kernel) { return max_rows_of(kernel) > reached && fits(kernel, first); });
  return why_incomplete(first, reached, policy_.one_reduction, unvalidated);
}

// Such a kernel is rejected before its refusal is asked for, which would open the library.
bool Selector::is_unvalidated_library(const GemmKernel& kernel) const {
  return kernel.reduction == ReductionId::library && !is_allowed(kernel);
}

// The reason why this policy never takes the kernel, not even by an override; empty if it may take it.
std::string Selector::rejection(const GemmKernel& kernel) const {
  if (policy_.one_reduction && kernel.reduction == ReductionId::library) return kRowsDependOnTheBatch;
  return imp::refusal(kernel, problem_, caps_);
}

// The kernels of complete(), even if they do not take every m.
std::vector<PlannedKernel> Selector::partial_plan(const GemmKernel& first) const {
  std::vector<PlannedKernel> chosen = for_fewer_rows(first);
  chosen.push_back({&first, max_rows_of(first)});
  for (const GemmKernel& kernel : kernels_) {
    if (max_rows_of(kernel) > chosen.back().max_m && may_follow(kernel, chosen, first)) {
      chosen.push_back({&kernel, max_rows_of(kernel)});
    }
  }
  return chosen;
}

bool Selector::may_follow(const GemmKernel& kernel, std::span<const PlannedKernel> chosen,
                          const GemmKernel& first) const {
  const bool leaves_no_gap =
      chosen.empty() ? kernel.min_preferred_m == 1 : kernel.min_preferred_m <= chosen.back().max_m + 1;
  return leaves_no_gap && multiplies(kernel, problem_.weight) && fits(kernel, first) && refusal(kernel).empty();
}

// Kernels that fit, in order, up to the number of rows from which `first` is tuned.
std::vector<PlannedKernel> Selector::for_fewer_rows(const GemmKernel& first) const {
  std::vector<PlannedKernel> chosen;
  for (const GemmKernel& kernel : kernels_) {
    const int reached = chosen.empty() ? 0 : chosen.back().max_m;
    if (reached >= first.min_preferred_m - 1) break;
    const int rows = std::min(max_rows_of(kernel), first.min_preferred_m - 1);
    if (&kernel != &first && rows > reached && may_follow(kernel, chosen, first)) chosen.push_back({&kernel, rows});
  }
  return chosen;
}

int Selector::max_rows_of(const GemmKernel& kernel) const {
  return policy_.one_reduction ? kernel.max_m : std::min(kernel.max_m, kernel.max_preferred_m);
}

const GemmKernel* Selector::forced(const GemmOverride& override) const {
  const GemmKernel* const kernel = find_kernel(kernels_, override.kernel);
  if (!multiplies(*kernel, problem_.weight)) refuse_other_type(override, kernel->weight, problem_.weight);
  if (const std::string reason = rejection(*kernel); !reason.empty()) refuse(override, reason);
  return kernel;
}

}  // namespace imp
