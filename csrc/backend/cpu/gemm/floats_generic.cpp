// Kernels over float weights in panels, for any processor.
#include "backend/cpu/gemm/kernels.h"
#include "backend/cpu/gemm/packed_floats.inl"

namespace imp::cpu {

IMP_FLOAT_TYPES(IMP_DEFINE_FLOAT_RUN, generic)

}  // namespace imp::cpu
