// Decodes blocks of IQ2_S.
#include "tensor/quant/iq2_s.h"

#include "tensor/half.h"
#include "tensor/quant/grid_rows.h"
#include "tensor/quant/iq2_s_grid.h"
#include "tensor/quant/load_block.h"

namespace imp::quant {
namespace {

constexpr auto kRows = with_levels<8, 2>(kIq2SGrid, kTwoBitLevels);

}  // namespace

void dequantize_iq2_s(const std::byte* blocks, float* out, std::int64_t n_blocks) noexcept {
  for (std::int64_t n = 0; n < n_blocks; ++n) {
    const auto block = load_block<BlockIQ2_S>(blocks, n);
    const float d = f16_to_f32(block.d);
    for (int j = 0; j < 32; ++j, out += 8) {
      const int nibble = block.scales[j / 4] >> (j / 2 % 2 * 4) & 0x0f;
      const float scale = d * (static_cast<float>(nibble) + 0.5F) * 0.25F;
      const int row = block.rows[j] | (block.high_bits[j / 4] >> (j % 4 * 2) & 3) << 8;
      put_eight(kRows[row], block.signs[j], scale, out);
    }
  }
}

}  // namespace imp::quant
