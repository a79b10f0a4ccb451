#include "backend/cpu/ops/ops_tables.h"

#include <algorithm>

namespace imp::cpu {
namespace {

constexpr OpsTable kTables[] = {
#if IMP_X86
    {"avx512bf16", needs::avx512bf16, &kCpuOpsAvx512Bf16},
    {"avx512vnni", needs::avx512vnni, &kCpuOpsAvx512Vnni},
    {"avx512", needs::avx512, &kCpuOpsAvx512},
    {"avx2vnni", needs::avx2vnni, &kCpuOpsAvx2Vnni},
    {"avx2", needs::avx2, &kCpuOpsAvx2},
#elif IMP_ARM
    {"neondot", needs::neondot, &kCpuOpsNeonDot},
#endif
    {"generic", needs::generic, &kCpuOpsGeneric},
};

}  // namespace

std::span<const OpsTable> ops_tables() noexcept {
  return kTables;
}

const OpsTable& ops_for(CpuFeatures features) noexcept {
  return *std::ranges::find_if(kTables, [&](const OpsTable& table) { return features.includes(table.needs); });
}

}  // namespace imp::cpu
