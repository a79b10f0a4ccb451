// BF16 weights in panels, with AVX-512 BF16 instructions.
#include "backend/cpu/gemm/kernels.h"
#include "backend/cpu/gemm/packed_floats.inl"

namespace imp::cpu {

void run_bf16_avx512bf16(const GemmArgs& args) {
  multiply_packed<PairBF16>(args);
}

}  // namespace imp::cpu
