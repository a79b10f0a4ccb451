// Quantization of activations with AVX512 instructions.
#include "backend/cpu/gemm/quantize_row.inl"

namespace imp::cpu {

void quantize_row_avx512(const float* x, std::int64_t k, ActivationBlock* out) {
  quantize_row(x, k, out);
}

}  // namespace imp::cpu
