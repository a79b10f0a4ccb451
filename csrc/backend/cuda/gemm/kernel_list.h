// The matrix kernels of the device, best first.
#pragma once

#include <span>

#include "backend/gemm.h"

namespace imp::cuda {

std::span<const GemmKernel> kernel_list() noexcept;

}  // namespace imp::cuda
