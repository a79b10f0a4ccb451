// Kernels over quantized weights, with AVX-512 VNNI instructions.
#include "backend/cpu/gemm/kernels.h"
#include "backend/cpu/gemm/quantized/product.inl"
#include "backend/cpu/gemm/quantized/types.h"

namespace imp::cpu {

IMP_QUANTIZED_TYPES(IMP_DEFINE_RUN, avx512vnni)
IMP_TILE_SHAPES(IMP_DEFINE_SHAPED_RUN, avx512vnni)

}  // namespace imp::cpu
