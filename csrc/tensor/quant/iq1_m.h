// Block of IQ1_M: 256 weights in 16 groups of 16: (d · (2 · scale + 1)) · (t ± ⅛), scale of 3 bits, t of −1, 0 and 1, 8
// of them at a time a row of the grid of IQ1_S.
#pragma once

#include <cstddef>
#include <cstdint>

namespace imp::quant {

struct BlockIQ1_M {
  std::uint8_t rows[32];       // byte j: low bits of the row of weights 8j to 8j + 7
  std::uint8_t high_bits[16];  // a nibble for each row, the low half first: its three high bits, the eighths' sign
  std::uint16_t scales[4];     // of each 3 bits for each of four groups, then 4 of d, an f16, the low ones first
};
static_assert(sizeof(BlockIQ1_M) == 56);

void dequantize_iq1_m(const std::byte* blocks, float* out, std::int64_t n_blocks) noexcept;

}  // namespace imp::quant
