// The matrix kernels' functions, for the list.
#pragma once

#include "backend/gemm_launch.h"

namespace imp::cuda {

// Any type of weights from the file's layout.
void launch_reference(const GemmLaunch& launch);

}  // namespace imp::cuda
