// Kernels over quantized weights, with AArch64's matrix-product instructions.
#include "backend/cpu/gemm/kernels.h"
#include "backend/cpu/gemm/quantized/product.inl"
#include "backend/cpu/gemm/quantized/types.h"

namespace imp::cpu {

IMP_QUANTIZED_TYPES(IMP_DEFINE_RUN, neoni8mm)

}  // namespace imp::cpu
