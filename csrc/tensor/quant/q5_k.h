// Block of Q5_K: 256 weights in 8 groups of 32: (d · scale) · q − dmin · min, q of 5 bits, scale and min of 6.
#pragma once

#include <cstdint>

#include "base/device_code.h"
#include "tensor/half.h"
#include "tensor/quant/group_scales.h"

namespace imp::quant {

struct BlockQ5_K {
  static constexpr int kElements = 256, kGroups = 8;

  std::uint16_t d;             // f16
  std::uint16_t dmin;          // f16
  std::uint8_t scales[12];     // see unpack_scale_and_min
  std::uint8_t high_bits[32];  // bit g of byte i: fifth bit of weight 32g + i
  std::uint8_t quants[128];    // byte 32p + i: weight 64p + i in the low half, weight 64p + 32 + i in the high half
};
static_assert(sizeof(BlockQ5_K) == 176);

IMP_DEVICE_CODE void decode(const BlockQ5_K& block, int begin, int end, float* out) noexcept {
  const float d = f16_to_f32(block.d);
  const float dmin = f16_to_f32(block.dmin);
  for (int group = begin; group < end; ++group) {
    const GroupScale its = unpack_scale_and_min(block.scales, group);
    const float scale = d * static_cast<float>(its.scale);
    const float min = dmin * static_cast<float>(its.min);
    const std::uint8_t* quants = block.quants + group / 2 * 32;
    const int shift = group % 2 * 4;
    for (int i = 0; i < 32; ++i) {
      const int high = (block.high_bits[i] >> group) & 1;
      out[32 * group + i] = scale * static_cast<float>(((quants[i] >> shift) & 0x0f) | high << 4) - min;
    }
  }
}

}  // namespace imp::quant
