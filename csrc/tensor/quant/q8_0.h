// Block of Q8_0: 32 weights d · q, q a signed byte.
#pragma once

#include <cstddef>
#include <cstdint>

namespace imp::quant {

struct BlockQ8_0 {
  std::uint16_t d;  // f16
  std::int8_t quants[32];
};
static_assert(sizeof(BlockQ8_0) == 34);

void dequantize_q8_0(const std::byte* blocks, float* out, std::int64_t n_blocks) noexcept;

}  // namespace imp::quant
