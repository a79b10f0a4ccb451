// Block of IQ4_NL: 32 weights d · level, one of 16 levels that lie denser around zero.
#pragma once

#include <cstdint>

#include "base/device_code.h"
#include "tensor/half.h"

namespace imp::quant {

struct BlockIQ4_NL {
  static constexpr int kElements = 32, kGroups = 1;

  std::uint16_t d;          // f16
  std::uint8_t quants[16];  // byte i: level of weight i in the low half, of weight i + 16 in the high half
};
static_assert(sizeof(BlockIQ4_NL) == 18);

IMP_DEVICE_TABLE std::int8_t kIq4Levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                               1,    13,   25,  38,  53,  69,  89,  113};

IMP_DEVICE_CODE void decode(const BlockIQ4_NL& block, float* out) noexcept {
  const float d = f16_to_f32(block.d);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(kIq4Levels[block.quants[i] & 0x0f]);
    out[i + 16] = d * static_cast<float>(kIq4Levels[block.quants[i] >> 4]);
  }
}

}  // namespace imp::quant
