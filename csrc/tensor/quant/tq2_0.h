// Block of TQ2_0: 256 weights d · (q − 1), q of 2 bits.
#pragma once

#include <cstddef>
#include <cstdint>

namespace imp::quant {

struct BlockTQ2_0 {
  std::uint8_t quants[64];  // byte 32h + i: bits 2s of it are weight 128h + 32s + i
  std::uint16_t d;          // f16
};
static_assert(sizeof(BlockTQ2_0) == 66);

void dequantize_tq2_0(const std::byte* blocks, float* out, std::int64_t n_blocks) noexcept;

}  // namespace imp::quant
