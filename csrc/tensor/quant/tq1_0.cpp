// Decodes blocks of TQ1_0.
#include "tensor/quant/tq1_0.h"

#include <span>

#include "tensor/half.h"
#include "tensor/quant/load_block.h"

namespace imp::quant {
namespace {

// The first n_digits of each byte, digit by digit. Returns the end of what it wrote.
float* put_digits(std::span<std::uint8_t> bytes, int n_digits, float d, float* out) noexcept {
  for (int digit = 0; digit < n_digits; ++digit) {
    for (std::uint8_t& byte : bytes) {
      const int tripled = 3 * byte;
      *out++ = d * static_cast<float>((tripled >> 8) - 1);
      byte = static_cast<std::uint8_t>(tripled);  // what is behind the digit
    }
  }
  return out;
}

}  // namespace

void dequantize_tq1_0(const std::byte* blocks, float* out, std::int64_t n_blocks) noexcept {
  for (std::int64_t n = 0; n < n_blocks; ++n) {
    auto block = load_block<BlockTQ1_0>(blocks, n);
    const float d = f16_to_f32(block.d);
    out = put_digits(block.five_of_32, 5, d, out);
    out = put_digits(block.five_of_16, 5, d, out);
    out = put_digits(block.four_of_4, 4, d, out);
  }
}

}  // namespace imp::quant
