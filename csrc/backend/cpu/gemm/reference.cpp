// The reference kernel: any weight type on any CPU. Faster kernels with the same reduction must give the same bits.
#include "backend/cpu/gemm/dequantized.h"
#include "backend/cpu/gemm/float_panels.inl"
#include "backend/cpu/gemm/interleave.inl"
#include "backend/cpu/gemm/kernels.h"

namespace imp::cpu {

void run_reference(const GemmArgs& args) {
  multiply_dequantized(args, {kTilePanels, interleave, multiply_panels});
}

}  // namespace imp::cpu
