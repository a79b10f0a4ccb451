// The two sides of the Q8_0 product in memory: a panel block of weights, and a block of quantized activations.
#pragma once

#include <cstdint>

namespace imp::cpu {

// 32 elements of 16 rows, in the order in which kernels load them: one 64-byte vector holds the same 4 elements of
// each row. Codes are stored plus 128, as the unsigned side of an unsigned-by-signed dot product.
struct PanelBlockQ8_0 {
  std::uint8_t codes[8][16][4];
  std::uint16_t scales[16];  // float16
};
static_assert(sizeof(PanelBlockQ8_0) == 16 * 34);

// 32 activations: value = code · scale, codes within [-127, 127]. A row's blocks follow each other.
struct ActivationBlock {
  std::int8_t codes[32];
  float scale;
  std::int32_t bias;  // -128 · sum of codes: undoes the 128 in the weights' codes
};
static_assert(sizeof(ActivationBlock) == 40);

}  // namespace imp::cpu
