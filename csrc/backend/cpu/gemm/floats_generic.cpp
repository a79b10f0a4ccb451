// Kernels over float weights in panels, for any processor.
#include "backend/cpu/gemm/float_panels.inl"
#include "backend/cpu/gemm/kernels.h"

namespace imp::cpu {

IMP_FLOAT_TYPES(IMP_DEFINE_FLOAT_RUN, generic)

}  // namespace imp::cpu
