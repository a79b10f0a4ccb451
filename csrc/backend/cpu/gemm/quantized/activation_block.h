// A block of quantized activations, as all kernels on quantized weights read it.
#pragma once

#include <cstdint>

namespace imp::cpu {

// 32 activations: value = code · scale, codes in [-127, 127]. A row's blocks are contiguous. A weight's zero point or
// minimum is multiplied by the sum of the codes: of all, or of each half.
struct ActivationBlock {
  std::int8_t codes[32];
  float scale;
  float scaled_sum;   // scale · sum of the codes
  std::int32_t bias;  // -128 · sum of the codes: for a zero point of 128, or divided for a smaller power of two
  std::int32_t half_biases[2];  // -32 · the sums of the first and of the last 16 codes
};
static_assert(sizeof(ActivationBlock) == 52);

}  // namespace imp::cpu
