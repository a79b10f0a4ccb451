// Matches overrides to weights.
#pragma once

#include <span>
#include <string_view>

#include "backend/gemm_registry.h"

namespace imp {

// Throws ModelError(OVERRIDE_INVALID) for an override that names an unknown kernel.
void require_known(std::span<const GemmKernel> kernels, std::span<const GemmOverride> overrides);
// The override that applies, or null. Throws ModelError(OVERRIDE_INVALID) if two of equal rank disagree.
const GemmOverride* override_for(std::span<const GemmOverride> overrides, DType weight, std::string_view tensor_name);

}  // namespace imp
