// The CPU ops compiled for AVX2 with FMA, F16C and AVX-VNNI.
#include "backend/cpu/ops/ops_table.inl"

namespace imp::cpu {

const CpuOps kCpuOpsAvx2Vnni = kTable;

}  // namespace imp::cpu
