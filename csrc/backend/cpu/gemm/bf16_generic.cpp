// BF16 weights in panels, for any processor.
#include "backend/cpu/gemm/float_panels.inl"
#include "backend/cpu/gemm/kernels.h"

namespace imp::cpu {

void run_bf16_generic(const GemmArgs& args) {
  multiply_packed<PairBF16>(args);
}

}  // namespace imp::cpu
