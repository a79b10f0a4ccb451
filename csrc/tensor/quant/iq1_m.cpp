// Decodes blocks of IQ1_M.
#include "tensor/quant/iq1_m.h"

#include "tensor/half.h"
#include "tensor/quant/iq1_grid.h"
#include "tensor/quant/load_block.h"

namespace imp::quant {
namespace {

float scale_of_all(const BlockIQ1_M& block) noexcept {
  unsigned bits = 0;
  for (int i = 0; i < 4; ++i) bits |= static_cast<unsigned>(block.scales[i] >> 12) << (4 * i);
  return f16_to_f32(static_cast<std::uint16_t>(bits));
}

}  // namespace

void dequantize_iq1_m(const std::byte* blocks, float* out, std::int64_t n_blocks) noexcept {
  for (std::int64_t n = 0; n < n_blocks; ++n) {
    const auto block = load_block<BlockIQ1_M>(blocks, n);
    const float d = scale_of_all(block);
    for (int j = 0; j < 32; ++j, out += 8) {
      const float scale = d * static_cast<float>(2 * (block.scales[j / 8] >> (j / 2 % 4 * 3) & 7) + 1);
      const int nibble = block.high_bits[j / 2] >> (j % 2 * 4) & 0x0f;
      put_trits(kIq1Grid[block.rows[j] | (nibble & 7) << 8], (nibble & 8) != 0 ? -0.125F : 0.125F, scale, out);
    }
  }
}

}  // namespace imp::quant
