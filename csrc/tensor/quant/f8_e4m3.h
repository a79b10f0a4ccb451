// Block of F8_E4M3: 64 weights scale · code. A code is an 8-bit float with four exponent bits and three mantissa bits;
// it has no infinity, and only 0x7f and 0xff are NaN.
//
// Checkpoints store codes and scales as two tensors, with a scale per tensor, row or tile. The block holds both for 64
// elements of a row, at 8.5 bits each. All published models have rows of a multiple of 64.
#pragma once

#include <cstdint>
#include <limits>

#include "base/device_code.h"
#include "tensor/half.h"

namespace imp::quant {

struct BlockF8_E4M3 {
  static constexpr int kElements = 64, kGroups = 2;

  float scale;  // 0, or kMinF8Scale <= |scale| < kF8ScaleLimit
  std::uint8_t codes[64];
};
static_assert(sizeof(BlockF8_E4M3) == 68);

// With these limits no product is subnormal or infinite, nor any intermediate scale of a kernel. File readers enforce
// them.
inline constexpr float kMinF8Scale = 0x1p-100F, kF8ScaleLimit = 0x1p100F;

// Exact: a float16 with the same bits after the sign has this value divided by 2^8.
IMP_DEVICE_CODE float e4m3_to_f32(std::uint8_t code) noexcept {
  if ((code & 0x7F) == 0x7F) return std::numeric_limits<float>::quiet_NaN();
  return f16_to_f32(static_cast<std::uint16_t>((code & 0x80) << 8 | (code & 0x7F) << 7)) * 256.0F;
}

IMP_DEVICE_CODE void decode(const BlockF8_E4M3& block, int begin, int end, float* out) noexcept {
  constexpr int kPerGroup = BlockF8_E4M3::kElements / BlockF8_E4M3::kGroups;
  for (int i = begin * kPerGroup; i < end * kPerGroup; ++i) out[i] = block.scale * e4m3_to_f32(block.codes[i]);
}

}  // namespace imp::quant
