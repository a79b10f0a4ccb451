// Block of Q3_K: 256 weights in 16 groups of 16: (d · (scale − 32)) · (q − 4), q of 3 bits, scale of 6.
#pragma once

#include <cstdint>

#include "base/device_code.h"
#include "tensor/half.h"

namespace imp::quant {

struct BlockQ3_K {
  static constexpr int kElements = 256, kGroups = 16;

  std::uint8_t high_bits[32];  // bit 4h + s of byte i: third bit of weight 128h + 32s + i
  std::uint8_t quants[64];     // bits 2s and 2s + 1 of byte 32h + i: low bits of weight 128h + 32s + i
  std::uint8_t scales[12];  // byte j < 8: low halves of scales j and j + 8; byte 8 + j: high bits of j, j+4, j+8, j+12
  std::uint16_t d;          // f16
};
static_assert(sizeof(BlockQ3_K) == 110);

IMP_DEVICE_CODE int scale_of(const BlockQ3_K& block, int group) noexcept {
  const int low = (block.scales[group % 8] >> (group / 8 * 4)) & 0x0f;
  const int high = (block.scales[8 + group % 4] >> (group / 4 * 2)) & 3;
  return low | high << 4;
}

IMP_DEVICE_CODE void decode(const BlockQ3_K& block, int begin, int end, float* out) noexcept {
  const float d = f16_to_f32(block.d);
  for (int group = begin; group < end; ++group) {
    const float scale = d * static_cast<float>(scale_of(block, group) - 32);
    // Half h = group / 8 of the block; shift s = group / 2 % 4; odd groups are the upper 16 bytes.
    const std::uint8_t* quants = block.quants + group / 8 * 32 + group % 2 * 16;
    const std::uint8_t* high_bits = block.high_bits + group % 2 * 16;
    const int shift = group / 2 % 4 * 2;
    for (int i = 0; i < 16; ++i) {
      const int low = (quants[i] >> shift) & 3;
      const int high = (high_bits[i] >> (group / 2)) & 1;
      out[16 * group + i] = scale * static_cast<float>((low | high << 2) - 4);
    }
  }
}

}  // namespace imp::quant
