// Kernels over float weights in panels, and over any type that is dequantized as it is multiplied, with AVX-512
// instructions.
#include "backend/cpu/gemm/dequantized.h"
#include "backend/cpu/gemm/interleave.inl"
#include "backend/cpu/gemm/kernels.h"
#include "backend/cpu/gemm/packed_floats.inl"

namespace imp::cpu {

IMP_FLOAT_TYPES(IMP_DEFINE_FLOAT_RUN, avx512)

void run_dequant_avx512(const GemmArgs& args) {
  multiply_dequantized(args, {kTilePanels, interleave, multiply_panels});
}

}  // namespace imp::cpu
