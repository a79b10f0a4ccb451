// Decodes blocks of IQ3_XXS.
#include "tensor/quant/iq3_xxs.h"

#include "tensor/half.h"
#include "tensor/quant/grid_rows.h"
#include "tensor/quant/iq3_xxs_grid.h"
#include "tensor/quant/load_block.h"

namespace imp::quant {
namespace {

constexpr float kLevels[8] = {4, 12, 20, 28, 36, 44, 52, 62};
constexpr auto kRows = with_levels<4, 3>(kIq3XxsGrid, kLevels);

}  // namespace

void dequantize_iq3_xxs(const std::byte* blocks, float* out, std::int64_t n_blocks) noexcept {
  for (std::int64_t n = 0; n < n_blocks; ++n) {
    const auto block = load_block<BlockIQ3_XXS>(blocks, n);
    const float d = f16_to_f32(block.d);
    for (int group = 0; group < 8; ++group) {
      const auto& halves = block.signs_and_scales[group];
      const unsigned bits = halves[0] | static_cast<unsigned>(halves[1]) << 16;
      const float scale = d * (static_cast<float>(bits >> 28) + 0.5F) * 0.5F;
      for (int j = 0; j < 4; ++j, out += 8) {
        const std::uint8_t* rows = block.rows + 8 * group + 2 * j;
        const unsigned signs = eight_signs(bits >> (7 * j) & 0x7f);
        put_four(kRows[rows[0]].data(), signs, scale, out);
        put_four(kRows[rows[1]].data(), signs >> 4, scale, out + 4);
      }
    }
  }
}

}  // namespace imp::quant
