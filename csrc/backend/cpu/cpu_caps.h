// Resolves the setting `device.isa` to CPU features.
#pragma once

#include <string_view>

#include "backend/gemm.h"
#include "base/cpu_features.h"

namespace imp::cpu {

// The features that a value of the setting names: for `auto` all of `here`, else those of isa_features(), which this
// CPU may lack. Throws InvalidArgument for an unknown value and lists the known ones.
CpuFeatures features_named(std::string_view isa, CpuFeatures here = detect_cpu_features());

// The same, but throws DeviceError(DEVICE_MISSING) if the CPU lacks a feature, and lists the features that it has.
CpuFeatures resolve_isa(std::string_view isa, CpuFeatures here = detect_cpu_features());
DeviceCaps cpu_caps(std::string_view isa);
// A CPU with these features, of the same make as this machine's.
DeviceCaps caps_of(CpuFeatures features);

}  // namespace imp::cpu
