// Decodes blocks of Q5_0.
#include "tensor/quant/q5_0.h"

#include "tensor/half.h"
#include "tensor/quant/fifth_bit.h"
#include "tensor/quant/load_block.h"

namespace imp::quant {

void dequantize_q5_0(const std::byte* blocks, float* out, std::int64_t n_blocks) noexcept {
  for (std::int64_t n = 0; n < n_blocks; ++n, out += 32) {
    const auto block = load_block<BlockQ5_0>(blocks, n);
    const float d = f16_to_f32(block.d);
    for (int i = 0; i < 16; ++i) {
      const int low = (block.quants[i] & 0x0f) | fifth_bit(block.high_bits, i);
      const int high = (block.quants[i] >> 4) | fifth_bit(block.high_bits, i + 16);
      out[i] = d * static_cast<float>(low - 16);
      out[i + 16] = d * static_cast<float>(high - 16);
    }
  }
}

}  // namespace imp::quant
