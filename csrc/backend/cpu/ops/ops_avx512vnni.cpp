// The CPU ops compiled for AVX-512 with VNNI.
#include "backend/cpu/ops/ops_table.inl"

namespace imp::cpu {

const CpuOps kCpuOpsAvx512Vnni = kTable;

}  // namespace imp::cpu
