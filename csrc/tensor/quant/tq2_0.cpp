// Decodes blocks of TQ2_0.
#include "tensor/quant/tq2_0.h"

#include "tensor/half.h"
#include "tensor/quant/load_block.h"

namespace imp::quant {

void dequantize_tq2_0(const std::byte* blocks, float* out, std::int64_t n_blocks) noexcept {
  for (std::int64_t n = 0; n < n_blocks; ++n, out += 256) {
    const auto block = load_block<BlockTQ2_0>(blocks, n);
    const float d = f16_to_f32(block.d);
    for (int group = 0; group < 8; ++group) {
      const std::uint8_t* quants = block.quants + group / 4 * 32;
      const int shift = group % 4 * 2;
      for (int i = 0; i < 32; ++i) out[32 * group + i] = d * static_cast<float>(((quants[i] >> shift) & 3) - 1);
    }
  }
}

}  // namespace imp::quant
