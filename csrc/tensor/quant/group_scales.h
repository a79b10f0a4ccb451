// The 6-bit scales and mins that Q4_K and Q5_K pack into 12 bytes.
#pragma once

#include <cstdint>

namespace imp::quant {

struct GroupScales {
  std::uint8_t scales[8];
  std::uint8_t mins[8];
};

// Groups 0 to 3 have their scale in the low six bits of bytes 0 to 3 and their min in those of bytes 4 to 7. Groups 4
// to 7 have four low bits of both in bytes 8 to 11 (scale in the low half) and two high bits on top of bytes 0 to 7.
constexpr GroupScales unpack_scales_and_mins(const std::uint8_t (&packed)[12]) noexcept {
  GroupScales groups{};
  for (int i = 0; i < 4; ++i) {
    groups.scales[i] = packed[i] & 0x3f;
    groups.mins[i] = packed[i + 4] & 0x3f;
    groups.scales[i + 4] = static_cast<std::uint8_t>((packed[i + 8] & 0x0f) | (packed[i] >> 6 << 4));
    groups.mins[i + 4] = static_cast<std::uint8_t>((packed[i + 8] >> 4) | (packed[i + 4] >> 6 << 4));
  }
  return groups;
}

}  // namespace imp::quant
