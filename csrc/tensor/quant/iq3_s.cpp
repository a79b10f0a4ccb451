// Decodes blocks of IQ3_S.
#include "tensor/quant/iq3_s.h"

#include "tensor/half.h"
#include "tensor/quant/grid_rows.h"
#include "tensor/quant/iq3_s_grid.h"
#include "tensor/quant/load_block.h"

namespace imp::quant {
namespace {

constexpr float kLevels[8] = {1, 3, 5, 7, 9, 11, 13, 15};
constexpr auto kRows = with_levels<4, 3>(kIq3SGrid, kLevels);

}  // namespace

void dequantize_iq3_s(const std::byte* blocks, float* out, std::int64_t n_blocks) noexcept {
  for (std::int64_t n = 0; n < n_blocks; ++n) {
    const auto block = load_block<BlockIQ3_S>(blocks, n);
    const float d = f16_to_f32(block.d);
    for (int j = 0; j < 32; ++j, out += 8) {
      const float scale = d * static_cast<float>(2 * (block.scales[j / 8] >> (j / 4 % 2 * 4) & 0x0f) + 1);
      const int high_bits = block.high_bits[j / 4] >> (j % 4 * 2);
      const int first = block.rows[2 * j] | (high_bits & 1) << 8;
      const int last = block.rows[2 * j + 1] | (high_bits & 2) << 7;
      const unsigned signs = block.signs[j];
      put_four(kRows[first].data(), signs, scale, out);
      put_four(kRows[last].data(), signs >> 4, scale, out + 4);
    }
  }
}

}  // namespace imp::quant
