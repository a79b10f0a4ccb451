// The CPU ops compiled for AVX2 with FMA and F16C.
#include "backend/cpu/ops/ops_table.inl"

namespace imp::cpu {

const CpuOps kCpuOpsAvx2 = kTable;

}  // namespace imp::cpu
