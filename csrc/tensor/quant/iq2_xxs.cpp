// Decodes blocks of IQ2_XXS.
#include "tensor/quant/iq2_xxs.h"

#include "tensor/half.h"
#include "tensor/quant/grid_rows.h"
#include "tensor/quant/iq2_xxs_grid.h"
#include "tensor/quant/load_block.h"

namespace imp::quant {
namespace {

constexpr auto kRows = with_levels<8, 2>(kIq2XxsGrid, kTwoBitLevels);

}  // namespace

void dequantize_iq2_xxs(const std::byte* blocks, float* out, std::int64_t n_blocks) noexcept {
  for (std::int64_t n = 0; n < n_blocks; ++n) {
    const auto block = load_block<BlockIQ2_XXS>(blocks, n);
    const float d = f16_to_f32(block.d);
    for (const auto& group : block.groups) {
      const unsigned bits = group.signs_and_scale[0] | static_cast<unsigned>(group.signs_and_scale[1]) << 16;
      const float scale = d * (static_cast<float>(bits >> 28) + 0.5F) * 0.25F;
      for (int j = 0; j < 4; ++j, out += 8) {
        put_eight(kRows[group.rows[j]], eight_signs(bits >> (7 * j) & 0x7f), scale, out);
      }
    }
  }
}

}  // namespace imp::quant
