// Decodes blocks of Q8_0.
#include "tensor/quant/q8_0.h"

#include "tensor/half.h"
#include "tensor/quant/load_block.h"

namespace imp::quant {

void dequantize_q8_0(const std::byte* blocks, float* out, std::int64_t n_blocks) noexcept {
  for (std::int64_t n = 0; n < n_blocks; ++n, out += 32) {
    const auto block = load_block<BlockQ8_0>(blocks, n);
    const float d = f16_to_f32(block.d);
    for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(block.quants[i]);
  }
}

}  // namespace imp::quant
