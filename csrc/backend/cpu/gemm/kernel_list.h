// The CPU's kernels.
#pragma once

#include <span>

#include "backend/gemm.h"

namespace imp::cpu {

// In order of preference; the last is `reference`.
std::span<const GemmKernel> kernel_list() noexcept;

}  // namespace imp::cpu
