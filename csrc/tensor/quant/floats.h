// The unquantized types as blocks of one element: F32, F16 and BF16.
#pragma once

#include <cstdint>

#include "base/device_code.h"
#include "tensor/half.h"

namespace imp::quant {

struct BlockF32 {
  static constexpr int kElements = 1, kGroups = 1;

  float value;
};
struct BlockF16 {
  static constexpr int kElements = 1, kGroups = 1;

  std::uint16_t bits;
};
struct BlockBF16 {
  static constexpr int kElements = 1, kGroups = 1;

  std::uint16_t bits;
};

IMP_DEVICE_CODE void decode(const BlockF32& block, float* out) noexcept {
  *out = block.value;
}
IMP_DEVICE_CODE void decode(const BlockF16& block, float* out) noexcept {
  *out = f16_to_f32(block.bits);
}
IMP_DEVICE_CODE void decode(const BlockBF16& block, float* out) noexcept {
  *out = bf16_to_f32(block.bits);
}

}  // namespace imp::quant
