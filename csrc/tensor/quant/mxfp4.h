// Block of MXFP4: 32 weights 2^(exponent - 128) · level, one of 15 levels: the 4-bit floats of two exponent bits and
// one mantissa bit, doubled so that they are integers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace imp::quant {

struct BlockMXFP4 {
  std::uint8_t exponent;
  std::uint8_t quants[16];  // byte i: level of weight i in the low half, of weight i + 16 in the high half
};
static_assert(sizeof(BlockMXFP4) == 17);

inline constexpr std::int8_t kFp4Levels[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// Small levels are subnormal under the two lowest exponents; they are written as bits, in any flush-to-zero mode.
void dequantize_mxfp4(const std::byte* blocks, float* out, std::int64_t n_blocks) noexcept;

}  // namespace imp::quant
