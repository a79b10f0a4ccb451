// Any weight type, dequantized during the product, with AVX2 instructions.
#include "backend/cpu/gemm/dequantized.h"
#include "backend/cpu/gemm/float_panels.inl"
#include "backend/cpu/gemm/interleave.inl"
#include "backend/cpu/gemm/kernels.h"

namespace imp::cpu {

void run_dequant_avx2(const GemmArgs& args) {
  multiply_dequantized(args, {kTilePanels, interleave, multiply_panels});
}

}  // namespace imp::cpu
