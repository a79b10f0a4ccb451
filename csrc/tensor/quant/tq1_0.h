// Block of TQ1_0: 256 weights d · (t − 1); t is 0, 1 or 2, five to a byte.
#pragma once

#include <cstdint>

#include "base/device_code.h"
#include "tensor/half.h"

namespace imp::quant {

// Five t are the base-3 digits of a fraction 0.t0 t1 t2 t3 t4. A byte is 256 times the fraction, rounded up. Multiplied
// by 3, its integer part is the next digit.
struct BlockTQ1_0 {
  static constexpr int kElements = 256, kGroups = 1;

  std::uint8_t five_of_32[32];  // byte i: weights i, 32 + i … 128 + i
  std::uint8_t five_of_16[16];  // byte i: weights 160 + i, 176 + i … 224 + i
  std::uint8_t four_of_4[4];    // byte i: weights 240 + i, 244 + i … 252 + i
  std::uint16_t d;              // f16
};
static_assert(sizeof(BlockTQ1_0) == 54);

// The first n_digits of each byte, digit by digit.
template <int n_bytes>
IMP_DEVICE_CODE void put_digits(const std::uint8_t (&bytes)[n_bytes], int n_digits, float d, float* out) noexcept {
  int shift = 1;  // a power of 3; digits that were read overflow the byte
  for (int digit = 0; digit < n_digits; ++digit, shift *= 3, out += n_bytes) {
    for (int i = 0; i < n_bytes; ++i) {
      const int rest = static_cast<std::uint8_t>(bytes[i] * shift);
      out[i] = d * static_cast<float>((3 * rest >> 8) - 1);
    }
  }
}

IMP_DEVICE_CODE void decode(const BlockTQ1_0& block, float* out) noexcept {
  const float d = f16_to_f32(block.d);
  put_digits(block.five_of_32, 5, d, out);
  put_digits(block.five_of_16, 5, d, out + 160);
  put_digits(block.four_of_4, 4, d, out + 240);
}

}  // namespace imp::quant
