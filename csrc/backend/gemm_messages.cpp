#include "backend/gemm_messages.h"

#include <optional>
#include <vector>

#include "base/error.h"

namespace imp {
namespace {

std::string type_name(DType type) {
  return std::string(traits(type).name);
}

std::string names_of(std::span<const GemmKernel* const> kernels) {
  std::string names;
  for (const GemmKernel* const kernel : kernels) names.append(names.empty() ? "" : ", ").append(kernel->name);
  return names;
}

// The kernels for the weights that a pattern matches. A glob may match weights of any type: lists the first few kernels
// and the last one, which takes all.
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

std::string rows_of(int max_m) {
  return max_m == kAnyRows ? "any number of rows" : "up to " + std::to_string(max_m) + " rows";
}

}  // namespace

void refuse(const GemmOverride& override, const std::string& why) {
  throw ModelError(Reason::OVERRIDE_INVALID, "gemm." + override.pattern + " = " + override.kernel + ": " + why);
}

void refuse_unknown(const GemmOverride& override, std::span<const GemmKernel> kernels) {
  refuse(override, "no such kernel; known: " + known_for(kernels, override.pattern));
}

void refuse_other_type(const GemmOverride& override, DType of_kernel, DType of_weight) {
  refuse(override, "multiplies " + type_name(of_kernel) + ", and the weight is " + type_name(of_weight));
}

void refuse_second(const GemmOverride& override, const GemmOverride& first) {
  refuse(override, "gemm." + first.pattern + " matches the same weight and names " + first.kernel);
}

void refuse_without_match(const GemmOverride& override) {
  refuse(override, "matches no tensor, and is none of the weight types: " + dtype_names());
}

void refuse_tuning(const GemmPreference& preference, const std::string& why) {
  throw FieldInvalid("tuning", type_name(preference.weight) + ": " + why);
}

void refuse_unvalidated(DType weight, std::span<const GemmKernel* const> unvalidated) {
  throw ModelError(
      Reason::MODEL_UNSUPPORTED,
      "weights of " + type_name(weight) + ": no kernel for them has run on hardware of this kind yet; " +
          "model.overrides.unvalidated_kernels = true allows those that have not: " + names_of(unvalidated));
}

std::string why_incomplete(const GemmKernel& first, int reached, bool one_reduction,
                           std::span<const GemmKernel* const> unvalidated) {
  std::string text = "takes up to " + std::to_string(first.max_m) + " rows, ";
  if (reached > first.max_m) text += "others up to " + std::to_string(reached) + ", ";
  std::string family = "of its layout (" + std::string(name_of(first.layout)) + ")";
  if (one_reduction) family += " and reduction (" + std::string(name_of(first.reduction)) + ")";
  if (unvalidated.empty()) return text + "and no kernel " + family + " takes more";
  return text + "and those " + family +
         " that take more have not run on their hardware (unvalidated_kernels = true allows them): " +
         names_of(unvalidated);
}

std::string why(const Selection& selection, const GemmKernel& kernel) {
  const bool by_override = selection.override != nullptr && &kernel == selection.first;
  std::string text =
      by_override ? "by override gemm." + selection.override->pattern : "first in the order of preference";
  if (selection.tuning != nullptr) {
    const std::string& processor = selection.tuning->processor;
    text = processor.empty() ? "tuned" : "the fastest on " + processor;
  }
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
  if (selection.tuning != nullptr) return "the tuning prefers others for every number of rows";
  return "an earlier kernel takes these rows";
}

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

}  // namespace imp
