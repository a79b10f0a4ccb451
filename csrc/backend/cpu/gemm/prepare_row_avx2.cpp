// Preparation of activations with AVX2 instructions.
#include "backend/cpu/gemm/prepare_row.inl"

namespace imp::cpu {

RowPreparers row_preparers_avx2() {
  return row_preparers();
}

}  // namespace imp::cpu
