// Decodes blocks of MXFP4.
#include "tensor/quant/mxfp4.h"

#include <array>
#include <bit>

#include "tensor/quant/load_block.h"

namespace imp::quant {
namespace {

using Values = std::array<float, 16>;

constexpr Values times_levels(float scale) noexcept {
  Values values{};
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = scale * static_cast<float>(kFp4Levels[i]);
  return values;
}

// Known to the compiler, since a processor that flushes subnormals would not multiply these.
constexpr Values kOfLowest[] = {times_levels(0x1p-128F), times_levels(0x1p-127F)};

Values values_of(std::uint8_t exponent) noexcept {
  if (exponent < 2) return kOfLowest[exponent];
  return times_levels(std::bit_cast<float>((exponent - 1U) << 23));
}

}  // namespace

void dequantize_mxfp4(const std::byte* blocks, float* out, std::int64_t n_blocks) noexcept {
  for (std::int64_t n = 0; n < n_blocks; ++n, out += 32) {
    const auto block = load_block<BlockMXFP4>(blocks, n);
    const Values values = values_of(block.exponent);
    for (int i = 0; i < 16; ++i) {
      out[i] = values[block.quants[i] & 0x0f];
      out[i + 16] = values[block.quants[i] >> 4];
    }
  }
}

}  // namespace imp::quant
