// The unquantized types as blocks of one element: F32, F16 and BF16.
#pragma once

#include <cstddef>
#include <cstdint>

namespace imp::quant {

void dequantize_f32(const std::byte* blocks, float* out, std::int64_t n_blocks) noexcept;
void dequantize_f16(const std::byte* blocks, float* out, std::int64_t n_blocks) noexcept;
void dequantize_bf16(const std::byte* blocks, float* out, std::int64_t n_blocks) noexcept;

}  // namespace imp::quant
