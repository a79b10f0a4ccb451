// F8_E4M3 weights in panels, for any processor.
#include "backend/cpu/gemm/float_panels.inl"
#include "backend/cpu/gemm/kernels.h"

namespace imp::cpu {

void run_f8_e4m3_generic(const GemmArgs& args) {
  multiply_packed<F8>(args);
}

}  // namespace imp::cpu
