// Preparation of activations on any CPU.
#include "backend/cpu/gemm/prepare_row.inl"

namespace imp::cpu {

RowPreparers row_preparers_generic() {
  return row_preparers();
}

}  // namespace imp::cpu
