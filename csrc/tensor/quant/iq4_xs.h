// Block of IQ4_XS: 256 weights in 8 groups of 32: (d · (scale − 32)) · level, scale of 6 bits, the levels of IQ4_NL.
#pragma once

#include <cstddef>
#include <cstdint>

namespace imp::quant {

struct BlockIQ4_XS {
  std::uint16_t d;             // f16
  std::uint16_t scales_high;   // bits 2g: high bits of group g's scale
  std::uint8_t scales_low[4];  // byte j: low bits of group 2j's scale in the low half, of 2j + 1's in the high half
  std::uint8_t quants[128];  // byte 16g + i: level of weight 32g + i in the low half, of 32g + 16 + i in the high half
};
static_assert(sizeof(BlockIQ4_XS) == 136);

void dequantize_iq4_xs(const std::byte* blocks, float* out, std::int64_t n_blocks) noexcept;

}  // namespace imp::quant
