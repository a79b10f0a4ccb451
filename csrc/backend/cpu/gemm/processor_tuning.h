// What is fastest on which processors: shapes of tiles, and software prefetches.
#pragma once

#include <vector>

#include "backend/gemm_registry.h"

namespace imp::cpu {

// The preferences for the processor of these capabilities, but `measured` for each type that it names: `imp tune`
// measured them on this machine. Kernels of other shapes give the same bits.
std::vector<GemmPreference> with_processor_tuning(std::vector<GemmPreference> measured, const DeviceCaps& caps);

// The features whose inner loops are the fastest on the processor: all of its own, but those for pairs of bfloat16
// where loops for floats are faster. Loops for other features give the same bits.
CpuFeatures fastest_features(const DeviceCaps& caps) noexcept;

// From how many rows of activations on quantized kernels prefetch weights, 1 or 3. One or two rows multiply about as
// fast as memory is read, and the processor's own prefetches may be enough. Multiplying more rows leaves pauses between
// reads, in which these fall behind.
int prefetching_rows(const Processor& processor) noexcept;

}  // namespace imp::cpu
