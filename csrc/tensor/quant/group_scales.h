// The 6-bit scales and mins that Q4_K and Q5_K pack into 12 bytes.
#pragma once

#include <cstdint>

namespace imp::quant {

struct GroupScale {
  int scale, min;
};

// Groups 0 to 3 have their scale in the low six bits of bytes 0 to 3 and their min in those of bytes 4 to 7. Groups 4
// to 7 have four low bits of both in bytes 8 to 11 (scale in the low half) and two high bits on top of bytes 0 to 7.
constexpr GroupScale unpack_scale_and_min(const std::uint8_t (&packed)[12], int group) noexcept {
  const int i = group % 4;
  if (group < 4) return {packed[i] & 0x3f, packed[i + 4] & 0x3f};
  return {(packed[i + 8] & 0x0f) | packed[i] >> 6 << 4, packed[i + 8] >> 4 | packed[i + 4] >> 6 << 4};
}

}  // namespace imp::quant
