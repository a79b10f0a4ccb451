// Decodes blocks of IQ2_XS.
#include "tensor/quant/iq2_xs.h"

#include "tensor/half.h"
#include "tensor/quant/grid_rows.h"
#include "tensor/quant/iq2_xs_grid.h"
#include "tensor/quant/load_block.h"

namespace imp::quant {
namespace {

constexpr auto kRows = with_levels<8, 2>(kIq2XsGrid, kTwoBitLevels);

}  // namespace

void dequantize_iq2_xs(const std::byte* blocks, float* out, std::int64_t n_blocks) noexcept {
  for (std::int64_t n = 0; n < n_blocks; ++n) {
    const auto block = load_block<BlockIQ2_XS>(blocks, n);
    const float d = f16_to_f32(block.d);
    for (int j = 0; j < 32; ++j, out += 8) {
      const int nibble = block.scales[j / 4] >> (j / 2 % 2 * 4) & 0x0f;
      const float scale = d * (static_cast<float>(nibble) + 0.5F) * 0.25F;
      const unsigned bits = block.rows_and_signs[j];
      put_eight(kRows[bits & 0x1ff], eight_signs(bits >> 9), scale, out);
    }
  }
}

}  // namespace imp::quant
