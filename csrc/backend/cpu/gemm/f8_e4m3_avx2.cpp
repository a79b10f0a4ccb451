// F8_E4M3 weights in panels, with AVX2 instructions.
#include "backend/cpu/gemm/float_panels.inl"
#include "backend/cpu/gemm/kernels.h"

namespace imp::cpu {

void run_f8_e4m3_avx2(const GemmArgs& args) {
  multiply_packed<F8>(args);
}

}  // namespace imp::cpu
