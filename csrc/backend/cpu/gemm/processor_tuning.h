// Which shapes of tiles are fastest on which processors.
#pragma once

#include <vector>

#include "backend/gemm_registry.h"

namespace imp::cpu {

// The preferences for the processor of these capabilities, but `measured` for each type that it names: `imp tune`
// measured them on this machine. Kernels of other shapes give the same bits.
std::vector<GemmPreference> with_processor_tuning(std::vector<GemmPreference> measured, const DeviceCaps& caps);

}  // namespace imp::cpu
