// From the setting `device.isa` to what the CPU's kernels may use.
#pragma once

#include <string_view>

#include "backend/gemm.h"
#include "base/cpu_features.h"

namespace imp::cpu {

// The features that a value of the setting names: all of `here` for `auto`, else what isa_features() returns. This CPU
// may lack some of them. Throws InvalidArgument for an unknown word and lists the known ones.
CpuFeatures features_named(std::string_view isa, CpuFeatures here = detect_cpu_features());

// Likewise, but throws DeviceError(DEVICE_MISSING) if the CPU lacks any of the features, and lists those that it has.
CpuFeatures resolve_isa(std::string_view isa, CpuFeatures here = detect_cpu_features());
DeviceCaps cpu_caps(std::string_view isa);
inline DeviceCaps caps_of(CpuFeatures features) {
  DeviceCaps caps;
  caps.cpu = features;
  return caps;
}

}  // namespace imp::cpu
