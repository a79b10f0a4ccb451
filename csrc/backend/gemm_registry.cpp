// Selection: one trace of decisions, from which both the plan and its explanation are read.
#include "backend/gemm_registry.h"

#include <algorithm>

#include "base/error.h"

namespace imp {

namespace {

[[noreturn]] void refuse(const GemmOverride& override, const std::string& why) {
  throw ModelError(Reason::OVERRIDE_INVALID, "gemm." + override.pattern + " = " + override.kernel + ": " + why);
}

bool matches_glob(std::string_view glob, std::string_view text) {
  std::size_t g = 0, t = 0;
  std::size_t star = std::string_view::npos, resume = 0;  // the last *, and where its text is tried to end next
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

// The override in force among those that satisfy `applies`, or none.
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

void require_known(std::span<const GemmKernel> kernels, std::span<const GemmOverride> overrides) {
  for (const GemmOverride& override : overrides) {
    if (find_kernel(kernels, override.kernel) != nullptr) continue;
    std::string known;
    for (const GemmKernel& kernel : kernels) {
      if (!known.empty()) known += ", ";
      known += kernel.name;
    }
    refuse(override, "no such kernel; known: " + known);
  }
}

bool multiplies(const GemmKernel& kernel, DType weight) {
  return kernel.any_weight || kernel.weight == weight;
}

bool same_sums(const GemmKernel& a, const GemmKernel& b) {
  return a.layout == b.layout && a.activations == b.activations && a.reduction == b.reduction;
}

struct Selection {
  const GemmOverride* override = nullptr;
  const GemmKernel* first = nullptr;      // decides layout, activations and reduction
  std::vector<const GemmKernel*> chosen;  // by ascending max_m
};

class Selector {
 public:
  Selector(std::span<const GemmKernel> kernels, const DeviceCaps& caps, const GemmProblem& problem)
      : kernels_(kernels), caps_(caps), problem_(problem) {}

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
      selection.first = &kernel;
      selection.chosen = complete(kernel);
      if (!selection.chosen.empty()) return selection;
    }
    throw InternalError(Reason::BUG, "the kernel list does not end in one that takes everything");
  }

  // Why this kernel may not be chosen by default; empty where it may.
  std::string refusal(const GemmKernel& kernel) const {
    const char* const reason = kernel.refuses(problem_, caps_);
    if (reason != nullptr) return reason;
    if (kernel.maturity == Maturity::emulated) return "has not run on its hardware; only an override may choose it";
    return {};
  }

  // `first` and the kernels of its layout and sums for larger m; empty where they do not reach every m.
  std::vector<const GemmKernel*> complete(const GemmKernel& first) const {
    std::vector<const GemmKernel*> chosen{&first};
    for (const GemmKernel& kernel : kernels_) {
      if (kernel.max_m > chosen.back()->max_m && multiplies(kernel, problem_.weight) && same_sums(kernel, first) &&
          refusal(kernel).empty()) {
        chosen.push_back(&kernel);
      }
    }
    if (chosen.back()->max_m != kAnyRows) chosen.clear();
    return chosen;
  }

  static std::string incomplete(const GemmKernel& first) {
    return "takes up to " + std::to_string(first.max_m) + " rows, and no kernel of its layout (" +
           std::string(name_of(first.layout)) + ") and reduction (" + std::string(name_of(first.reduction)) +
           ") takes more";
  }

 private:
  const GemmKernel* forced(const GemmOverride& override) const {
    const GemmKernel* const kernel = find_kernel(kernels_, override.kernel);
    if (!multiplies(*kernel, problem_.weight)) {
      refuse(override, "multiplies " + std::string(traits(kernel->weight).name) + ", and the weight is " +
                           std::string(traits(problem_.weight).name));
    }
    if (const char* const reason = kernel->refuses(problem_, caps_)) refuse(override, reason);
    return kernel;
  }

  std::span<const GemmKernel> kernels_;
  const DeviceCaps& caps_;
  const GemmProblem& problem_;
};

std::string rows_of(const GemmKernel& kernel) {
  return kernel.max_m == kAnyRows ? "any number of rows" : "up to " + std::to_string(kernel.max_m) + " rows";
}

std::string why_not(const Selector& selector, const Selection& selection, const GemmKernel& kernel) {
  if (std::string refusal = selector.refusal(kernel); !refusal.empty()) return refusal;
  if (!same_sums(kernel, *selection.first)) {
    // It came first and fits: only rows that nothing completes, or an override, can have passed it over.
    const bool passed_over = &kernel < selection.first && selection.override == nullptr;
    if (passed_over) return Selector::incomplete(kernel);
    return "another layout or reduction than " + std::string(selection.first->name);
  }
  if (selection.override != nullptr && &kernel < selection.first) return "an override names another";
  return "an earlier kernel takes these rows";
}

}  // namespace

std::string describe(const GemmPlan& plan) {
  std::string text = std::string(name_of(plan.layout)) + " " + std::string(name_of(plan.kernels.front()->reduction));
  const char* separator = ": ";
  for (const GemmKernel* kernel : plan.kernels) {
    text.append(separator).append(kernel->name);
    if (kernel->max_m != kAnyRows) text.append(" ").append(rows_of(*kernel));
    if (kernel->maturity == Maturity::emulated) text += " (has not run on its hardware)";
    separator = ", ";
  }
  return text;
}

GemmPlan GemmRegistry::plan(const GemmProblem& problem, std::string_view tensor_name,
                            std::span<const GemmOverride> overrides) const {
  Selection selection = Selector(kernels_, caps_, problem).select(tensor_name, overrides);
  return {selection.first->layout, std::move(selection.chosen)};
}

std::vector<GemmCandidate> GemmRegistry::explain(const GemmProblem& problem, std::string_view tensor_name,
                                                 std::span<const GemmOverride> overrides) const {
  const Selector selector(kernels_, caps_, problem);
  const Selection selection = selector.select(tensor_name, overrides);
  std::vector<GemmCandidate> lines;
  for (const GemmKernel& kernel : kernels_) {
    if (!multiplies(kernel, problem.weight)) continue;
    if (std::ranges::find(selection.chosen, &kernel) == selection.chosen.end()) {
      lines.push_back({kernel.name, false, why_not(selector, selection, kernel)});
      continue;
    }
    const bool by_override = selection.override != nullptr && &kernel == selection.first;
    const std::string who = by_override ? "by override gemm." + selection.override->pattern : "by order";
    lines.push_back({kernel.name, true, who + ", " + rows_of(kernel)});
  }
  return lines;
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
