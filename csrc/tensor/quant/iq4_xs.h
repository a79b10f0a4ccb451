// Block of IQ4_XS: 256 weights in 8 groups of 32: (d · (scale − 32)) · level, scale of 6 bits, the levels of IQ4_NL.
#pragma once

#include <cstdint>

#include "base/device_code.h"
#include "tensor/half.h"
#include "tensor/quant/iq4_nl.h"

namespace imp::quant {

struct BlockIQ4_XS {
  static constexpr int kElements = 256, kGroups = 8;

  std::uint16_t d;             // f16
  std::uint16_t scales_high;   // bits 2g and 2g + 1: high bits of group g's scale
  std::uint8_t scales_low[4];  // byte j: low bits of group 2j's scale in the low half, of 2j + 1's in the high half
  std::uint8_t quants[128];  // byte 16g + i: level of weight 32g + i in the low half, of 32g + 16 + i in the high half
};
static_assert(sizeof(BlockIQ4_XS) == 136);

IMP_DEVICE_CODE void decode(const BlockIQ4_XS& block, int begin, int end, float* out) noexcept {
  const float d = f16_to_f32(block.d);
  for (int group = begin; group < end; ++group) {
    const int low = (block.scales_low[group / 2] >> (group % 2 * 4)) & 0x0f;
    const int high = (block.scales_high >> (2 * group)) & 3;
    const float scale = d * static_cast<float>((low | high << 4) - 32);
    const std::uint8_t* quants = block.quants + 16 * group;
    for (int i = 0; i < 16; ++i) {
      out[32 * group + i] = scale * static_cast<float>(kIq4Levels[quants[i] & 0x0f]);
      out[32 * group + 16 + i] = scale * static_cast<float>(kIq4Levels[quants[i] >> 4]);
    }
  }
}

}  // namespace imp::quant
