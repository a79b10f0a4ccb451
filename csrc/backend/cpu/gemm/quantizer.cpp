// The choice among the instruction sets.
#include "backend/cpu/gemm/quantizer.h"

namespace imp::cpu {

QuantizeRow quantizer_for([[maybe_unused]] const DeviceCaps& caps) noexcept {
#if IMP_X86
  if (caps.avx512) return quantize_row_avx512;
  if (caps.avx2) return quantize_row_avx2;
#endif
  return quantize_row_generic;
}

}  // namespace imp::cpu
