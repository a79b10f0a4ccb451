// The texts of kernel selection: refusals and explanations.
#pragma once

#include <span>
#include <string>

#include "backend/gemm_selector.h"

namespace imp {

inline constexpr const char* kUnvalidated =
    "has not run on its hardware; only model.overrides can select it: by name, or with unvalidated_kernels";
inline constexpr const char* kRowsDependOnTheBatch =
    "a row's bits depend on the number of rows in its batch, which the deterministic mode does not allow";

[[noreturn]] void refuse(const GemmOverride& override, const std::string& why);
[[noreturn]] void refuse_unknown(const GemmOverride& override, std::span<const GemmKernel> kernels);
[[noreturn]] void refuse_other_type(const GemmOverride& override, DType of_kernel, DType of_weight);
[[noreturn]] void refuse_second(const GemmOverride& override, const GemmOverride& first);
[[noreturn]] void refuse_without_match(const GemmOverride& override);
[[noreturn]] void refuse_tuning(const GemmPreference& preference, const std::string& why);
// `unvalidated` could multiply the weights if they were validated.
[[noreturn]] void refuse_unvalidated(DType weight, std::span<const GemmKernel* const> unvalidated);

// Why a plan that begins with `first` ends after `reached` rows. `unvalidated` take more, but are not validated.
std::string why_incomplete(const GemmKernel& first, int reached, bool one_reduction,
                           std::span<const GemmKernel* const> unvalidated);
// "first in the order of preference, up to 8 rows". A kernel that a tuning chose for small and large m has both ranges.
std::string why(const Selection& selection, const GemmKernel& kernel);
std::string why_not(const Selector& selector, const Selection& selection, const GemmKernel& kernel);

}  // namespace imp
