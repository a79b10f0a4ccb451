// From an instruction set's word to what the CPU's kernels may use.
#pragma once

#include <string_view>

#include "backend/gemm.h"
#include "base/cpu_features.h"

namespace imp::cpu {

// The instruction set to use: the user's word, or for `auto` the best that the CPU has. Throws InvalidArgument for a
// word that is not known (listing the known), DeviceError(DEVICE_MISSING) where the CPU lacks it (listing what it has).
std::string_view resolve_isa(std::string_view isa, const CpuFeatures& here = detect_cpu_features());

// What kernels may use under a resolved word.
DeviceCaps cpu_caps(std::string_view isa);

}  // namespace imp::cpu
