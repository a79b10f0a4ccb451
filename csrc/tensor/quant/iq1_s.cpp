// Decodes blocks of IQ1_S.
#include "tensor/quant/iq1_s.h"

#include "tensor/half.h"
#include "tensor/quant/iq1_grid.h"
#include "tensor/quant/load_block.h"

namespace imp::quant {

void dequantize_iq1_s(const std::byte* blocks, float* out, std::int64_t n_blocks) noexcept {
  for (std::int64_t n = 0; n < n_blocks; ++n) {
    const auto block = load_block<BlockIQ1_S>(blocks, n);
    const float d = f16_to_f32(block.d);
    for (int j = 0; j < 32; ++j, out += 8) {
      const int group = block.groups[j / 4];
      const float scale = d * static_cast<float>(2 * (group >> 12 & 7) + 1);
      const int row = block.rows[j] | (group >> (j % 4 * 3) & 7) << 8;
      put_trits(kIq1Grid[row], (group & 0x8000) != 0 ? -0.125F : 0.125F, scale, out);
    }
  }
}

}  // namespace imp::quant
