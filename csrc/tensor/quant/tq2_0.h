// Block of TQ2_0: 256 weights d · (q − 1), q of 2 bits.
#pragma once

#include <cstdint>

#include "base/device_code.h"
#include "tensor/half.h"

namespace imp::quant {

struct BlockTQ2_0 {
  static constexpr int kElements = 256, kGroups = 8;

  std::uint8_t quants[64];  // bits 2s and 2s + 1 of byte 32h + i: weight 128h + 32s + i
  std::uint16_t d;          // f16
};
static_assert(sizeof(BlockTQ2_0) == 66);

IMP_DEVICE_CODE void decode(const BlockTQ2_0& block, int begin, int end, float* out) noexcept {
  const float d = f16_to_f32(block.d);
  for (int group = begin; group < end; ++group) {
    const std::uint8_t* quants = block.quants + group / 4 * 32;
    const int shift = group % 4 * 2;
    for (int i = 0; i < 32; ++i) out[32 * group + i] = d * static_cast<float>(((quants[i] >> shift) & 3) - 1);
  }
}

}  // namespace imp::quant
