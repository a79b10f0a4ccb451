// Decodes blocks of Q2_K.
#include "tensor/quant/q2_k.h"

#include "tensor/half.h"
#include "tensor/quant/load_block.h"

namespace imp::quant {

void dequantize_q2_k(const std::byte* blocks, float* out, std::int64_t n_blocks) noexcept {
  for (std::int64_t n = 0; n < n_blocks; ++n, out += 256) {
    const auto block = load_block<BlockQ2_K>(blocks, n);
    const float d = f16_to_f32(block.d);
    const float dmin = f16_to_f32(block.dmin);
    for (int group = 0; group < 16; ++group) {
      const float scale = d * static_cast<float>(block.scales[group] & 0x0f);
      const float min = dmin * static_cast<float>(block.scales[group] >> 4);
      // Half h = group / 8 of the block; shift s = group / 2 % 4; groups of odd number are the upper 16 bytes.
      const std::uint8_t* quants = block.quants + group / 8 * 32 + group % 2 * 16;
      const int shift = group / 2 % 4 * 2;
      for (int i = 0; i < 16; ++i) out[16 * group + i] = scale * static_cast<float>((quants[i] >> shift) & 3) - min;
    }
  }
}

}  // namespace imp::quant
