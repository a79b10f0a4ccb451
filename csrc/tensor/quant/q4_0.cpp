// Decodes blocks of Q4_0.
#include "tensor/quant/q4_0.h"

#include "tensor/half.h"
#include "tensor/quant/load_block.h"

namespace imp::quant {

void dequantize_q4_0(const std::byte* blocks, float* out, std::int64_t n_blocks) noexcept {
  for (std::int64_t n = 0; n < n_blocks; ++n, out += 32) {
    const auto block = load_block<BlockQ4_0>(blocks, n);
    const float d = f16_to_f32(block.d);
    for (int i = 0; i < 16; ++i) {
      out[i] = d * static_cast<float>((block.quants[i] & 0x0f) - 8);
      out[i + 16] = d * static_cast<float>((block.quants[i] >> 4) - 8);
    }
  }
}

}  // namespace imp::quant
