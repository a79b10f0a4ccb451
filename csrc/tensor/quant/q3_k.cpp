// Decodes blocks of Q3_K.
#include "tensor/quant/q3_k.h"

#include "tensor/half.h"
#include "tensor/quant/load_block.h"

namespace imp::quant {
namespace {

int scale_of(const BlockQ3_K& block, int group) noexcept {
  const int low = (block.scales[group % 8] >> (group / 8 * 4)) & 0x0f;
  const int high = (block.scales[8 + group % 4] >> (group / 4 * 2)) & 3;
  return low | high << 4;
}

}  // namespace

void dequantize_q3_k(const std::byte* blocks, float* out, std::int64_t n_blocks) noexcept {
  for (std::int64_t n = 0; n < n_blocks; ++n, out += 256) {
    const auto block = load_block<BlockQ3_K>(blocks, n);
    const float d = f16_to_f32(block.d);
    for (int group = 0; group < 16; ++group) {
      const float scale = d * static_cast<float>(scale_of(block, group) - 32);
      // Half h = group / 8 of the block; shift s = group / 2 % 4; groups of odd number are the upper 16 bytes.
      const std::uint8_t* quants = block.quants + group / 8 * 32 + group % 2 * 16;
      const std::uint8_t* high_bits = block.high_bits + group % 2 * 16;
      const int shift = group / 2 % 4 * 2;
      for (int i = 0; i < 16; ++i) {
        const int low = (quants[i] >> shift) & 3;
        const int high = (high_bits[i] >> (group / 2)) & 1;
        out[16 * group + i] = scale * static_cast<float>((low | high << 2) - 4);
      }
    }
  }
}

}  // namespace imp::quant
