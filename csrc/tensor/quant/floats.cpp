// Widens F32, F16 and BF16.
#include "tensor/quant/floats.h"

#include <cstring>

#include "tensor/half.h"
#include "tensor/quant/load_block.h"

namespace imp::quant {

void dequantize_f32(const std::byte* blocks, float* out, std::int64_t n_blocks) noexcept {
  std::memcpy(out, blocks, static_cast<std::size_t>(n_blocks) * sizeof(float));
}

void dequantize_f16(const std::byte* blocks, float* out, std::int64_t n_blocks) noexcept {
  for (std::int64_t n = 0; n < n_blocks; ++n) out[n] = f16_to_f32(load_block<std::uint16_t>(blocks, n));
}

void dequantize_bf16(const std::byte* blocks, float* out, std::int64_t n_blocks) noexcept {
  for (std::int64_t n = 0; n < n_blocks; ++n) out[n] = bf16_to_f32(load_block<std::uint16_t>(blocks, n));
}

}  // namespace imp::quant
