// The tables of inner loops that this build has.
#pragma once

#include <span>
#include <string_view>

#include "backend/cpu/ops/cpu_ops.h"
#include "base/cpu_features.h"

namespace imp::cpu {

struct OpsTable {
  std::string_view isa;
  CpuFeatures needs;
  const CpuOps* ops;
};

// The fastest first. Any processor runs the last one.
std::span<const OpsTable> ops_tables() noexcept;
// The fastest one that a CPU with these features runs.
const OpsTable& ops_for(CpuFeatures features) noexcept;

}  // namespace imp::cpu
