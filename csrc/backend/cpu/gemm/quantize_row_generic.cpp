// Quantization of activations on any CPU.
#include "backend/cpu/gemm/quantize_row.inl"

namespace imp::cpu {

void quantize_row_generic(const float* x, std::int64_t k, ActivationBlock* out) {
  quantize_row(x, k, out);
}

}  // namespace imp::cpu
