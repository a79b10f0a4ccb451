// Decodes blocks of Q6_K.
#include "tensor/quant/q6_k.h"

#include "tensor/half.h"
#include "tensor/quant/load_block.h"

namespace imp::quant {

void dequantize_q6_k(const std::byte* blocks, float* out, std::int64_t n_blocks) noexcept {
  for (std::int64_t n = 0; n < n_blocks; ++n, out += 256) {
    const auto block = load_block<BlockQ6_K>(blocks, n);
    const float d = f16_to_f32(block.d);
    for (int group = 0; group < 16; ++group) {
      const float scale = d * static_cast<float>(block.scales[group]);
      // Half h = group / 8 of the block, 32 weights s = group / 2 % 4 of it, 16 of those at `offset`.
      const int half = group / 8;
      const int quarter = group / 2 % 4;
      const int offset = group % 2 * 16;
      const std::uint8_t* low_bits = block.low_bits + 64 * half + quarter % 2 * 32 + offset;
      const std::uint8_t* high_bits = block.high_bits + 32 * half + offset;
      for (int i = 0; i < 16; ++i) {
        const int low = (low_bits[i] >> (quarter / 2 * 4)) & 0x0f;
        const int high = (high_bits[i] >> (2 * quarter)) & 3;
        out[16 * group + i] = scale * static_cast<float>((low | high << 4) - 32);
      }
    }
  }
}

}  // namespace imp::quant
