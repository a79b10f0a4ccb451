// Decodes blocks of IQ3_S.
#include "tensor/quant/iq3_s.h"

#include "tensor/half.h"
#include "tensor/quant/grid_rows.h"
#include "tensor/quant/iq3_s_grid.h"
#include "tensor/quant/load_block.h"

namespace imp::quant {

void dequantize_iq3_s(const std::byte* blocks, float* out, std::int64_t n_blocks) noexcept {
  constexpr float kLevels[8] = {1, 3, 5, 7, 9, 11, 13, 15};
  for (std::int64_t n = 0; n < n_blocks; ++n) {
    const auto block = load_block<BlockIQ3_S>(blocks, n);
    const float d = f16_to_f32(block.d);
    for (int j = 0; j < 64; ++j, out += 4) {
      const int nibble = block.scales[j / 16] >> (j / 8 % 2 * 4) & 0x0f;
      const int row = block.rows[j] | (block.high_bits[j / 8] >> (j % 8) & 1) << 8;
      const unsigned signs = block.signs[j / 2] >> (j % 2 * 4);
      put_row_of_4(kIq3SGrid[row], signs, kLevels, d * static_cast<float>(2 * nibble + 1), out);
    }
  }
}

}  // namespace imp::quant
