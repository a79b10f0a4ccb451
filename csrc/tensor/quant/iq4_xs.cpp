// Decodes blocks of IQ4_XS.
#include "tensor/quant/iq4_xs.h"

#include "tensor/half.h"
#include "tensor/quant/iq4_nl.h"
#include "tensor/quant/load_block.h"

namespace imp::quant {

void dequantize_iq4_xs(const std::byte* blocks, float* out, std::int64_t n_blocks) noexcept {
  for (std::int64_t n = 0; n < n_blocks; ++n, out += 256) {
    const auto block = load_block<BlockIQ4_XS>(blocks, n);
    const float d = f16_to_f32(block.d);
    for (int group = 0; group < 8; ++group) {
      const int low = (block.scales_low[group / 2] >> (group % 2 * 4)) & 0x0f;
      const int high = (block.scales_high >> (2 * group)) & 3;
      const float scale = d * static_cast<float>((low | high << 4) - 32);
      const std::uint8_t* quants = block.quants + 16 * group;
      for (int i = 0; i < 16; ++i) {
        out[32 * group + i] = scale * static_cast<float>(kIq4Levels[quants[i] & 0x0f]);
        out[32 * group + 16 + i] = scale * static_cast<float>(kIq4Levels[quants[i] >> 4]);
      }
    }
  }
}

}  // namespace imp::quant
