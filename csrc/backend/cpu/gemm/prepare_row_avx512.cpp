// Preparation of activations with AVX-512 instructions.
#include "backend/cpu/gemm/prepare_row.inl"

namespace imp::cpu {

RowPreparers row_preparers_avx512() {
  return row_preparers();
}

}  // namespace imp::cpu
