// The CPU ops compiled for AVX-512.
#include "backend/cpu/ops/ops_table.inl"

namespace imp::cpu {

const CpuOps kCpuOpsAvx512 = kTable;

}  // namespace imp::cpu
