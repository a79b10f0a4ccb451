// Block of Q2_K: 256 weights in 16 groups of 16: (d · scale) · q − dmin · min, q of 2 bits, scale and min of 4.
#pragma once

#include <cstdint>

#include "base/device_code.h"
#include "tensor/half.h"

namespace imp::quant {

struct BlockQ2_K {
  static constexpr int kElements = 256, kGroups = 16;

  std::uint8_t scales[16];  // per group: scale in the low half, min in the high half
  std::uint8_t quants[64];  // bits 2s and 2s + 1 of byte 32h + i: weight 128h + 32s + i
  std::uint16_t d;          // f16
  std::uint16_t dmin;       // f16
};
static_assert(sizeof(BlockQ2_K) == 84);

IMP_DEVICE_CODE void decode(const BlockQ2_K& block, int begin, int end, float* out) noexcept {
  const float d = f16_to_f32(block.d);
  const float dmin = f16_to_f32(block.dmin);
  for (int group = begin; group < end; ++group) {
    const float scale = d * static_cast<float>(block.scales[group] & 0x0f);
    const float min = dmin * static_cast<float>(block.scales[group] >> 4);
    // Half h = group / 8 of the block; shift s = group / 2 % 4; odd groups are the upper 16 bytes.
    const std::uint8_t* quants = block.quants + group / 8 * 32 + group % 2 * 16;
    const int shift = group / 2 % 4 * 2;
    for (int i = 0; i < 16; ++i) out[16 * group + i] = scale * static_cast<float>((quants[i] >> shift) & 3) - min;
  }
}

}  // namespace imp::quant
