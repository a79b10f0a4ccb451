// F16 weights in panels, for any processor.
#include "backend/cpu/gemm/float_panels.inl"
#include "backend/cpu/gemm/kernels.h"

namespace imp::cpu {

void run_f16_generic(const GemmArgs& args) {
  multiply_packed<F16>(args);
}

}  // namespace imp::cpu
