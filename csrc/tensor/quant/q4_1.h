// Block of Q4_1: 32 weights d · q + m, q of 4 bits.
#pragma once

#include <cstdint>

#include "base/device_code.h"
#include "tensor/half.h"

namespace imp::quant {

struct BlockQ4_1 {
  static constexpr int kElements = 32, kGroups = 1;

  std::uint16_t d;          // f16
  std::uint16_t m;          // f16
  std::uint8_t quants[16];  // byte i: weight i in the low half, weight i + 16 in the high half
};
static_assert(sizeof(BlockQ4_1) == 20);

IMP_DEVICE_CODE void decode(const BlockQ4_1& block, float* out) noexcept {
  const float d = f16_to_f32(block.d);
  const float m = f16_to_f32(block.m);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(block.quants[i] & 0x0f) + m;
    out[i + 16] = d * static_cast<float>(block.quants[i] >> 4) + m;
  }
}

}  // namespace imp::quant
