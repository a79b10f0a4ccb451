// Block of MXFP4: 32 weights 2^(exponent - 128) · level. A level is a 4-bit float with two exponent bits and one
// mantissa bit (E2M1), doubled to an integer.
#pragma once

#include <bit>
#include <cstdint>

#include "base/device_code.h"

namespace imp::quant {

struct BlockMXFP4 {
  static constexpr int kElements = 32, kGroups = 1;

  std::uint8_t exponent;
  std::uint8_t quants[16];  // byte i: level of weight i in the low half, of weight i + 16 in the high half
};
static_assert(sizeof(BlockMXFP4) == 17);

IMP_DEVICE_TABLE std::int8_t kFp4Levels[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// The weights at the two smallest exponents. Some are subnormal: a processor that flushes subnormals cannot compute
// them.
IMP_DEVICE_TABLE float kLowestExponentWeights[2][16] = {
    {0, 0x1p-128F, 0x2p-128F, 0x3p-128F, 0x4p-128F, 0x6p-128F, 0x8p-128F, 0xCp-128F, 0, -0x1p-128F, -0x2p-128F,
     -0x3p-128F, -0x4p-128F, -0x6p-128F, -0x8p-128F, -0xCp-128F},
    {0, 0x1p-127F, 0x2p-127F, 0x3p-127F, 0x4p-127F, 0x6p-127F, 0x8p-127F, 0xCp-127F, 0, -0x1p-127F, -0x2p-127F,
     -0x3p-127F, -0x4p-127F, -0x6p-127F, -0x8p-127F, -0xCp-127F}};

IMP_DEVICE_CODE void decode(const BlockMXFP4& block, float* out) noexcept {
  float values[16];
  for (int i = 0; i < 16; ++i) {
    values[i] = block.exponent < 2
                    ? kLowestExponentWeights[block.exponent][i]
                    : std::bit_cast<float>((block.exponent - 1U) << 23) * static_cast<float>(kFp4Levels[i]);
  }
  for (int i = 0; i < 16; ++i) {
    out[i] = values[block.quants[i] & 0x0f];
    out[i + 16] = values[block.quants[i] >> 4];
  }
}

}  // namespace imp::quant
