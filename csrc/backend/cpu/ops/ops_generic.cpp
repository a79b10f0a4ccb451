// The CPU ops compiled for any processor.
#include "backend/cpu/ops/ops_table.inl"

namespace imp::cpu {

const CpuOps kCpuOpsGeneric = kTable;

}  // namespace imp::cpu
