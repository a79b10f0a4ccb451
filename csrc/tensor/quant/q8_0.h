// Block of Q8_0: 32 weights d · q, q a signed byte.
#pragma once

#include <cstdint>

#include "base/device_code.h"
#include "tensor/half.h"

namespace imp::quant {

struct BlockQ8_0 {
  static constexpr int kElements = 32, kGroups = 1;

  std::uint16_t d;  // f16
  std::int8_t quants[32];
};
static_assert(sizeof(BlockQ8_0) == 34);

IMP_DEVICE_CODE void decode(const BlockQ8_0& block, float* out) noexcept {
  const float d = f16_to_f32(block.d);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(block.quants[i]);
}

}  // namespace imp::quant
