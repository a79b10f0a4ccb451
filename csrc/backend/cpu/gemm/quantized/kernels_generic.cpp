// Kernels over quantized weights, for any processor.
#include "backend/cpu/gemm/kernels.h"
#include "backend/cpu/gemm/quantized/product.inl"
#include "backend/cpu/gemm/quantized/types.h"

namespace imp::cpu {

IMP_QUANTIZED_TYPES(IMP_DEFINE_RUN, generic)

}  // namespace imp::cpu
