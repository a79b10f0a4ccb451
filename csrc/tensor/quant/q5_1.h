// Block of Q5_1: 32 weights d · q + m, q of 5 bits.
#pragma once

#include <cstdint>

#include "base/device_code.h"
#include "tensor/half.h"
#include "tensor/quant/fifth_bit.h"

namespace imp::quant {

struct BlockQ5_1 {
  static constexpr int kElements = 32, kGroups = 1;

  std::uint16_t d;            // f16
  std::uint16_t m;            // f16
  std::uint8_t high_bits[4];  // little-endian 32 bits: bit i is the fifth bit of weight i
  std::uint8_t quants[16];    // byte i: weight i in the low half, weight i + 16 in the high half
};
static_assert(sizeof(BlockQ5_1) == 24);

IMP_DEVICE_CODE void decode(const BlockQ5_1& block, float* out) noexcept {
  const float d = f16_to_f32(block.d);
  const float m = f16_to_f32(block.m);
  for (int i = 0; i < 16; ++i) {
    const int low = (block.quants[i] & 0x0f) | fifth_bit(block.high_bits, i);
    const int high = (block.quants[i] >> 4) | fifth_bit(block.high_bits, i + 16);
    out[i] = d * static_cast<float>(low) + m;
    out[i + 16] = d * static_cast<float>(high) + m;
  }
}

}  // namespace imp::quant
