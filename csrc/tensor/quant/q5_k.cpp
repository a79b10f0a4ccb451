// Decodes blocks of Q5_K.
#include "tensor/quant/q5_k.h"

#include "tensor/half.h"
#include "tensor/quant/group_scales.h"
#include "tensor/quant/load_block.h"

namespace imp::quant {

void dequantize_q5_k(const std::byte* blocks, float* out, std::int64_t n_blocks) noexcept {
  for (std::int64_t n = 0; n < n_blocks; ++n, out += 256) {
    const auto block = load_block<BlockQ5_K>(blocks, n);
    const float d = f16_to_f32(block.d);
    const float dmin = f16_to_f32(block.dmin);
    const GroupScales groups = unpack_scales_and_mins(block.scales);
    for (int group = 0; group < 8; ++group) {
      const float scale = d * static_cast<float>(groups.scales[group]);
      const float min = dmin * static_cast<float>(groups.mins[group]);
      const std::uint8_t* quants = block.quants + group / 2 * 32;
      const int shift = group % 2 * 4;
      for (int i = 0; i < 32; ++i) {
        const int high = (block.high_bits[i] >> group) & 1;
        out[32 * group + i] = scale * static_cast<float>(((quants[i] >> shift) & 0x0f) | high << 4) - min;
      }
    }
  }
}

}  // namespace imp::quant
