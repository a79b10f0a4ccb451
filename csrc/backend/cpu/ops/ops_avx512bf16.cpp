// The CPU ops compiled for AVX-512 with products of bfloat16.
#include "backend/cpu/ops/ops_table.inl"

namespace imp::cpu {

const CpuOps kCpuOpsAvx512Bf16 = kTable;

}  // namespace imp::cpu
