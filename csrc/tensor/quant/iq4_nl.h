// Block of IQ4_NL: 32 weights d · level, one of 16 levels that lie denser around zero.
#pragma once

#include <cstddef>
#include <cstdint>

namespace imp::quant {

struct BlockIQ4_NL {
  std::uint16_t d;          // f16
  std::uint8_t quants[16];  // byte i: level of weight i in the low half, of weight i + 16 in the high half
};
static_assert(sizeof(BlockIQ4_NL) == 18);

inline constexpr std::int8_t kIq4Levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                               1,    13,   25,  38,  53,  69,  89,  113};

void dequantize_iq4_nl(const std::byte* blocks, float* out, std::int64_t n_blocks) noexcept;

}  // namespace imp::quant
