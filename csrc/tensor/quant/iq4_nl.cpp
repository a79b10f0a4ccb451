// Decodes blocks of IQ4_NL.
#include "tensor/quant/iq4_nl.h"

#include "tensor/half.h"
#include "tensor/quant/load_block.h"

namespace imp::quant {

void dequantize_iq4_nl(const std::byte* blocks, float* out, std::int64_t n_blocks) noexcept {
  for (std::int64_t n = 0; n < n_blocks; ++n, out += 32) {
    const auto block = load_block<BlockIQ4_NL>(blocks, n);
    const float d = f16_to_f32(block.d);
    for (int i = 0; i < 16; ++i) {
      out[i] = d * static_cast<float>(kIq4Levels[block.quants[i] & 0x0f]);
      out[i + 16] = d * static_cast<float>(kIq4Levels[block.quants[i] >> 4]);
    }
  }
}

}  // namespace imp::quant
