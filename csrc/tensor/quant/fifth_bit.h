// The fifth bits of the 5-bit blocks of 32 weights.
#pragma once

#include <cstdint>

namespace imp::quant {

// Bit i of 32 little-endian bits, as the highest bit of a 5-bit number.
constexpr int fifth_bit(const std::uint8_t (&high_bits)[4], int i) noexcept {
  return ((high_bits[i / 8] >> (i % 8)) & 1) << 4;
}

}  // namespace imp::quant
