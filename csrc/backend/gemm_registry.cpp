// Selection. The plan and its explanation come from the same decisions.
#include "backend/gemm_registry.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"

namespace imp {

namespace {

[[noreturn]] void refuse(const GemmOverride& override, const std::string& why) {
  throw ModelError(Reason::OVERRIDE_INVALID, "gemm." + override.pattern + " = " + override.kernel + ": " + why);
}

bool matches_glob(std::string_view glob, std::string_view text) {
  std::size_t g = 0, t = 0;
  std::size_t star = std::string_view::npos, resume = 0;  // the last *, and the next place where its text may end
  while (t < text.size()) {
    if (g < glob.size() && (glob[g] == '?' || (glob[g] == text[t] && glob[g] != '*'))) {
      ++g, ++t;
    } else if (g < glob.size() && glob[g] == '*') {
      star = g++;
      resume = t;
    } else if (star != std::string_view::npos) {
      g = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  return glob.find_first_not_of('*', g) == std::string_view::npos;
}

// The override that applies, or none.
template <class Applies>
const GemmOverride* only_one(std::span<const GemmOverride> overrides, const Applies& applies) {
  const GemmOverride* chosen = nullptr;
  for (const GemmOverride& override : overrides) {
    if (!applies(override)) continue;
    if (chosen != nullptr && chosen->kernel != override.kernel) {
      refuse(override, "gemm." + chosen->pattern + " matches the same weight and names " + chosen->kernel);
    }
    chosen = &override;
  }
  return chosen;
}

const GemmOverride* override_for(std::span<const GemmOverride> overrides, DType weight, std::string_view tensor_name) {
  const GemmOverride* const by_tensor = only_one(overrides, [&](const GemmOverride& override) {
    return !dtype_from_name(override.pattern) && !tensor_name.empty() && matches_glob(override.pattern, tensor_name);
  });
  if (by_tensor != nullptr) return by_tensor;
  return only_one(overrides, [&](const GemmOverride& override) { return override.pattern == traits(weight).name; });
}

const GemmKernel* find_kernel(std::span<const GemmKernel> kernels, std::string_view name) {
  const auto found = std::ranges::find(kernels, name, &GemmKernel::name);
  return found == kernels.end() ? nullptr : &*found;
}

bool multiplies(const GemmKernel& kernel, DType weight) {
  return kernel.any_weight || kernel.weight == weight;
}

std::string names_of(std::span<const GemmKernel* const> kernels) {
  std::string names;
  for (const GemmKernel* const kernel : kernels) names.append(names.empty() ? "" : ", ").append(kernel->name);
  return names;
}

// The kernels that a pattern's weights can use. A glob may match weights of any type: the first few kernels and the
// last one, which takes all.
std::string known_for(std::span<const GemmKernel> kernels, const std::string& pattern) {
  constexpr std::size_t kFew = 6;
  const std::optional<DType> weight = dtype_from_name(pattern);
  std::vector<const GemmKernel*> known;
  for (const GemmKernel& kernel : kernels) {
    if (!weight || multiplies(kernel, *weight)) known.push_back(&kernel);
  }
  if (weight || known.size() <= kFew) return names_of(known);
  return names_of(std::span(known).first(kFew - 1)) + ", ..., " + std::string(known.back()->name) + " (" +
         std::to_string(known.size()) + " in all; imp kernels lists them)";
}

void require_known(std::span<const GemmKernel> kernels, std::span<const GemmOverride> overrides) {
  for (const GemmOverride& override : overrides) {
    if (find_kernel(kernels, override.kernel) != nullptr) continue;
    refuse(override, "no such kernel; known: " + known_for(kernels, override.pattern));
  }
}

bool same_sums(const GemmKernel& a, const GemmKernel& b) {
  return a.layout == b.layout && a.activations == b.activations && a.reduction == b.reduction;
}

using Tuning = std::span<const GemmPreference>;

[[noreturn]] void refuse_tuning(const GemmPreference& preference, const std::string& why) {
  throw FieldInvalid("tuning", std::string(traits(preference.weight).name) + ": " + why);
}

void require_tuning(std::span<const GemmKernel> kernels, Tuning tuning) {
  for (const GemmPreference& preference : tuning) {
    const GemmKernel* const kernel = find_kernel(kernels, preference.kernel);
    if (kernel == nullptr) refuse_tuning(preference, "no kernel " + preference.kernel);
    if (!multiplies(*kernel, preference.weight)) refuse_tuning(preference, preference.kernel + " is of another type");
  }
  for (std::size_t i = 0; i < tuning.size(); ++i) {
    const bool is_last = i + 1 == tuning.size() || tuning[i + 1].weight != tuning[i].weight;
    const bool ascends = is_last ? tuning[i].max_m == kAnyRows : tuning[i].max_m < tuning[i + 1].max_m;
    if (!ascends || tuning[i].max_m < 1) refuse_tuning(tuning[i], "rows do not ascend to any number");
  }
}

struct Selection {
  const GemmOverride* override = nullptr;
  const GemmKernel* first = nullptr;  // decides layout, activations and reduction; nullptr if nothing is chosen
  std::vector<PlannedKernel> chosen;  // by ascending max_m
  bool is_tuned = false;
};

class Selector {
 public:
  Selector(std::span<const GemmKernel> kernels, const DeviceCaps& caps, const GemmProblem& problem, Tuning tuning,
           const PlanPolicy& policy)
      : kernels_(kernels), caps_(caps), problem_(problem), tuning_(tuning), policy_(policy) {}

  // Without kernels where none that fits is validated.
  Selection select(std::string_view tensor_name, std::span<const GemmOverride> overrides) const {
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

  // Like select(), but throws if it finds none.
  Selection require(std::string_view tensor_name, std::span<const GemmOverride> overrides) const {
    Selection selection = select(tensor_name, overrides);
    if (selection.chosen.empty()) refuse_unvalidated();
    return selection;
  }

  // Why this kernel is not a default choice; empty if it may be.
  std::string refusal(const GemmKernel& kernel) const {
    if (is_out_of_question(kernel)) return kUnvalidated;
    if (std::string reason = unfitness(kernel); !reason.empty()) return reason;
    if (!is_taken(kernel)) return kUnvalidated;
    return {};
  }

  // `first`, then kernels of its layout and sums for larger m; before it, kernels for fewer rows than it is meant for.
  // Empty if they do not reach every m.
  std::vector<PlannedKernel> complete(const GemmKernel& first) const {
    std::vector<PlannedKernel> chosen = as_far_as_they_reach(first);
    if (chosen.back().kernel->max_m == kAnyRows) chosen.back().max_m = kAnyRows;
    if (chosen.back().max_m != kAnyRows) chosen.clear();
    return chosen;
  }

  // Whether a plan that begins with `first` may continue with this kernel.
  bool fits(const GemmKernel& kernel, const GemmKernel& first) const {
    return policy_.one_reduction ? same_sums(kernel, first) : kernel.layout == first.layout;
  }

  // Replaces the chosen kernels with those of the tuning, all or none.
  void tune(Selection& selection) const {
    std::vector<PlannedKernel> tuned;
    for (const GemmPreference& preference : tuning_) {
      if (preference.weight != problem_.weight) continue;
      const GemmKernel* const kernel = find_kernel(kernels_, preference.kernel);
      if (!same_sums(*kernel, *selection.first) || !refusal(*kernel).empty() || kernel->max_m < preference.max_m)
        return;
      if (!tuned.empty() && tuned.back().kernel == kernel) {
        tuned.back().max_m = preference.max_m;
      } else {
        tuned.push_back({kernel, preference.max_m});
      }
    }
    if (tuned.empty()) return;
    selection.chosen = std::move(tuned);
    selection.is_tuned = true;
  }

  std::string incomplete(const GemmKernel& first) const {
    const int reached = std::max(first.max_m, as_far_as_they_reach(first).back().max_m);
    std::string text = "takes up to " + std::to_string(first.max_m) + " rows, ";
    if (reached > first.max_m) text += "others up to " + std::to_string(reached) + ", ";
    std::string family = "of its layout (" + std::string(name_of(first.layout)) + ")";
    if (policy_.one_reduction) family += " and reduction (" + std::string(name_of(first.reduction)) + ")";
    const std::vector<const GemmKernel*> waiting =
        waiting_kernels([&](const GemmKernel& kernel) { return rows_for(kernel) > reached && fits(kernel, first); });
    if (waiting.empty()) return text + "and no kernel " + family + " takes more";
    return text + "and those " + family +
           " that take more have not run on their hardware (unvalidated_kernels = true takes them): " +
           names_of(waiting);
  }

 private:
  static constexpr const char* kUnvalidated =
      "has not run on its hardware; only model.overrides may take it: by name, or by unvalidated_kernels";

  // Does not ask whether a library is available, since that would open it.
  bool is_out_of_question(const GemmKernel& kernel) const {
    return kernel.reduction == ReductionId::library && !is_taken(kernel);
  }

  // The reason why this policy never takes the kernel, not even by an override; empty if it may take it.
  std::string unfitness(const GemmKernel& kernel) const {
    if (policy_.one_reduction && kernel.reduction == ReductionId::library) {
      return "a row's bits depend on how many rows it comes with, which the deterministic mode does not allow";
    }
    return imp::refusal(kernel, problem_, caps_);
  }

  // The kernels of complete(), even if they do not reach every m.
  std::vector<PlannedKernel> as_far_as_they_reach(const GemmKernel& first) const {
    std::vector<PlannedKernel> chosen = for_fewer_rows(first);
    chosen.push_back({&first, rows_for(first)});
    for (const GemmKernel& kernel : kernels_) {
      if (rows_for(kernel) > chosen.back().max_m && may_follow(kernel, chosen, first)) {
        chosen.push_back({&kernel, rows_for(kernel)});
      }
    }
    return chosen;
  }

  bool may_follow(const GemmKernel& kernel, std::span<const PlannedKernel> chosen, const GemmKernel& first) const {
    const bool leaves_no_gap = chosen.empty() ? kernel.least_m == 1 : kernel.least_m <= chosen.back().max_m + 1;
    return leaves_no_gap && multiplies(kernel, problem_.weight) && fits(kernel, first) && refusal(kernel).empty();
  }

  // Kernels of the layout, in order, up to the rows that `first` is meant for.
  std::vector<PlannedKernel> for_fewer_rows(const GemmKernel& first) const {
    std::vector<PlannedKernel> chosen;
    if (policy_.one_reduction) return chosen;
    for (const GemmKernel& kernel : kernels_) {
      const int reached = chosen.empty() ? 0 : chosen.back().max_m;
      if (reached >= first.least_m - 1) break;
      const int rows = std::min(rows_for(kernel), first.least_m - 1);
      if (&kernel != &first && rows > reached && may_follow(kernel, chosen, first)) chosen.push_back({&kernel, rows});
    }
    return chosen;
  }

  bool is_taken(const GemmKernel& kernel) const { return kernel.validated || policy_.unvalidated_kernels; }

  int rows_for(const GemmKernel& kernel) const {
    return policy_.one_reduction ? kernel.max_m : std::min(kernel.max_m, kernel.best_m);
  }

  // The kernels that could multiply the weight, were they validated, and that satisfy `applies`.
  template <class Applies>
  std::vector<const GemmKernel*> waiting_kernels(const Applies& applies) const {
    std::vector<const GemmKernel*> found;
    for (const GemmKernel& kernel : kernels_) {
      if (!multiplies(kernel, problem_.weight) || is_taken(kernel) || is_out_of_question(kernel)) continue;
      if (applies(kernel) && unfitness(kernel).empty()) found.push_back(&kernel);
    }
    return found;
  }

  [[noreturn]] void refuse_unvalidated() const {
    const std::vector<const GemmKernel*> waiting = waiting_kernels([](const GemmKernel&) { return true; });
    IMP_CHECK(!waiting.empty());  // else the list does not end in one that takes everything
    throw ModelError(Reason::MODEL_UNSUPPORTED,
                     "weights of " + std::string(traits(problem_.weight).name) + ": no kernel for them has run on " +
                         "hardware of this kind yet; model.overrides.unvalidated_kernels = true takes those that " +
                         "have not: " + names_of(waiting));
  }

  const GemmKernel* forced(const GemmOverride& override) const {
    const GemmKernel* const kernel = find_kernel(kernels_, override.kernel);
    if (!multiplies(*kernel, problem_.weight)) {
      refuse(override, "multiplies " + std::string(traits(kernel->weight).name) + ", and the weight is " +
                           std::string(traits(problem_.weight).name));
    }
    if (const std::string reason = unfitness(*kernel); !reason.empty()) refuse(override, reason);
    return kernel;
  }

  std::span<const GemmKernel> kernels_;
  const DeviceCaps& caps_;
  const GemmProblem& problem_;
  Tuning tuning_;
  const PlanPolicy& policy_;
};

std::string rows_of(int max_m) {
  return max_m == kAnyRows ? "any number of rows" : "up to " + std::to_string(max_m) + " rows";
}

// "by order, up to 8 rows". A kernel that a tuning chose for small and large m has both ranges.
std::string why(const Selection& selection, const GemmKernel& kernel) {
  const bool by_override = selection.override != nullptr && &kernel == selection.first;
  std::string text = by_override ? "by override gemm." + selection.override->pattern : "by order";
  if (selection.is_tuned) text = "tuned";
  for (const PlannedKernel& planned : selection.chosen) {
    if (planned.kernel == &kernel) text += ", " + rows_of(planned.max_m);
  }
  return text;
}

std::string why_not(const Selector& selector, const Selection& selection, const GemmKernel& kernel) {
  if (std::string refusal = selector.refusal(kernel); !refusal.empty()) return refusal;
  if (selection.first == nullptr) return selector.incomplete(kernel);
  if (!selector.fits(kernel, *selection.first)) {
    // The kernel came first and fits, so it was skipped because its rows cannot be completed or an override names
    // another.
    const bool passed_over = &kernel < selection.first && selection.override == nullptr;
    if (passed_over) return selector.incomplete(kernel);
    return "another layout or reduction than " + std::string(selection.first->name);
  }
  if (selection.override != nullptr && &kernel < selection.first) return "an override names another";
  if (selection.is_tuned) return "the tuning prefers others for every number of rows";
  return "an earlier kernel takes these rows";
}

}  // namespace

std::string describe(const GemmPlan& plan) {
  std::string text =
      std::string(name_of(plan.layout)) + " " + std::string(name_of(plan.kernels.front().kernel->reduction));
  const char* separator = ": ";
  for (const auto& [kernel, max_m] : plan.kernels) {
    text.append(separator).append(kernel->name);
    if (max_m != kAnyRows) text.append(" ").append(rows_of(max_m));
    if (!kernel->validated) text += " (has not run on its hardware)";
    separator = ", ";
  }
  return text;
}

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

void require_matches(std::span<const GemmOverride> overrides, std::span<const std::string_view> tensor_names) {
  for (const GemmOverride& override : overrides) {
    if (dtype_from_name(override.pattern)) continue;
    const auto matched = [&](std::string_view name) { return matches_glob(override.pattern, name); };
    if (std::ranges::none_of(tensor_names, matched)) {
      refuse(override, "matches no tensor, and is none of the weight types: " + dtype_names());
    }
  }
}

}  // namespace imp
