// A block of quantized activations, as every kernel over quantized weights reads it; plain data.
#pragma once

#include <cstdint>

namespace imp::cpu {

// 32 activations: value = code · scale, codes within [-127, 127]. A row's blocks follow each other. What a weight's
// zero point or minimum multiplies is the sum of the codes: of all, or of each half.
struct ActivationBlock {
  std::int8_t codes[32];
  float scale;
  float scaled_sum;             // scale · sum of the codes
  std::int32_t bias;            // -128 · sum of the codes: a zero point of 128, and divided, any smaller power of two
  std::int32_t half_biases[2];  // likewise -32 · the sums of the first and of the last 16 codes
};
static_assert(sizeof(ActivationBlock) == 52);

}  // namespace imp::cpu
