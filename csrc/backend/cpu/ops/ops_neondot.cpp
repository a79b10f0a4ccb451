// The CPU ops compiled for AArch64 with the dot-product instructions.
#include "backend/cpu/ops/ops_table.inl"

namespace imp::cpu {

const CpuOps kCpuOpsNeonDot = kTable;

}  // namespace imp::cpu
