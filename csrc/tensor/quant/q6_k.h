// Block of Q6_K: 256 weights in 16 groups of 16: (d · scale) · (q − 32), q of 6 bits, scale a signed byte.
#pragma once

#include <cstdint>

#include "base/device_code.h"
#include "tensor/half.h"

namespace imp::quant {

struct BlockQ6_K {
  static constexpr int kElements = 256, kGroups = 16;

  std::uint8_t low_bits[128];  // byte 64h + i: weight 128h + i in the low half, weight 128h + 64 + i in the high half
  std::uint8_t high_bits[64];  // bits 2s and 2s + 1 of byte 32h + i: high bits of weight 128h + 32s + i
  std::int8_t scales[16];
  std::uint16_t d;  // f16
};
static_assert(sizeof(BlockQ6_K) == 210);

IMP_DEVICE_CODE void decode(const BlockQ6_K& block, int begin, int end, float* out) noexcept {
  const float d = f16_to_f32(block.d);
  for (int group = begin; group < end; ++group) {
    const float scale = d * static_cast<float>(block.scales[group]);
    // The group is in half group / 8 of the block, in quarter group / 2 % 4 of that half, from `offset` on.
    const int half = group / 8;
    const int quarter = group / 2 % 4;
    const int offset = group % 2 * 16;
    const std::uint8_t* low_bits = block.low_bits + 64 * half + quarter % 2 * 32 + offset;
    const std::uint8_t* high_bits = block.high_bits + 32 * half + offset;
    for (int i = 0; i < 16; ++i) {
      const int low = (low_bits[i] >> (quarter / 2 * 4)) & 0x0f;
      const int high = (high_bits[i] >> (2 * quarter)) & 3;
      out[16 * group + i] = scale * static_cast<float>((low | high << 4) - 32);
    }
  }
}

}  // namespace imp::quant
