// Block of Q4_0: 32 weights d · (q − 8), q of 4 bits.
#pragma once

#include <cstdint>

#include "base/device_code.h"
#include "tensor/half.h"

namespace imp::quant {

struct BlockQ4_0 {
  static constexpr int kElements = 32, kGroups = 1;

  std::uint16_t d;          // f16
  std::uint8_t quants[16];  // byte i: weight i in the low half, weight i + 16 in the high half
};
static_assert(sizeof(BlockQ4_0) == 18);

IMP_DEVICE_CODE void decode(const BlockQ4_0& block, float* out) noexcept {
  const float d = f16_to_f32(block.d);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>((block.quants[i] & 0x0f) - 8);
    out[i + 16] = d * static_cast<float>((block.quants[i] >> 4) - 8);
  }
}

}  // namespace imp::quant
