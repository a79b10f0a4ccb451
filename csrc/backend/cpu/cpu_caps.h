// From an instruction set's word to what the CPU's kernels may use.
#pragma once

#include <string_view>

#include "backend/gemm.h"

namespace imp::cpu {

// The instruction set to use: the user's word, or for `auto` the best of this machine. Throws InvalidArgument for a
// word that is not known (listing the known), DeviceError(DEVICE_MISSING) where this CPU lacks it (listing what it has).
std::string_view resolve_isa(std::string_view isa);

// What kernels may use under a resolved word.
DeviceCaps cpu_caps(std::string_view isa);

}  // namespace imp::cpu
