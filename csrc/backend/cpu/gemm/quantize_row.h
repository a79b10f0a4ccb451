// Quantization of activations, one function per instruction set; plain declarations.
#pragma once

#include <cstdint>

#include "backend/cpu/gemm/quantized/activation_block.h"

namespace imp::cpu {

// Quantizes one row of k floats, k a multiple of 32, to k / 32 blocks. Per block, with a = max |x|:
//   a is not finite          every code 0 and the scale NaN: the products are NaN, so that it is seen downstream
//   a < 2^-119               all zero: the scale would not be a normal float
//   else                     scale a / 127, codes x · (127 / a) rounded to nearest even
// A row's blocks depend on that row alone, and not on the instruction set.
using QuantizeRow = void (*)(const float* x, std::int64_t k, ActivationBlock* out);

void quantize_row_generic(const float* x, std::int64_t k, ActivationBlock* out);
void quantize_row_avx2(const float* x, std::int64_t k, ActivationBlock* out);
void quantize_row_avx512(const float* x, std::int64_t k, ActivationBlock* out);

}  // namespace imp::cpu
