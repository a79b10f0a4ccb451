// Block of IQ1_S: 256 weights in 8 groups of 32: (d · (2 · scale + 1)) · (t ± ⅛), scale of 3 bits, t of −1, 0 and 1, 8
// of them at a time a row of a grid of 2048.
#pragma once

#include <cstddef>
#include <cstdint>

namespace imp::quant {

struct BlockIQ1_S {
  std::uint16_t d;          // f16
  std::uint8_t rows[32];    // byte j: low bits of the row of weights 8j to 8j + 7
  std::uint16_t groups[8];  // of each 3 bits for the high ones of each row, 3 for the scale, the eighths' sign
};
static_assert(sizeof(BlockIQ1_S) == 50);

void dequantize_iq1_s(const std::byte* blocks, float* out, std::int64_t n_blocks) noexcept;

}  // namespace imp::quant
