// Converts F8_E4M3 codes to float16 with bit operations: as fast as newer GPUs' instruction, and on every GPU.
#pragma once

#include "backend/cuda/device/arch.cuh"

namespace imp::cuda {

// Converts bytes 0 and 2 of a word, or 1 and 3 if odd; none is NaN. Exact, scaled by 2^-8.
__device__ __forceinline__ std::uint32_t scaled_halves(std::uint32_t codes, int odd) {
  const std::uint32_t upper = odd != 0 ? codes : codes << 8;  // the code's sign bit becomes that of the half
  return arch::and_or(upper, 0x80008000, upper >> 1 & 0x3f803f80);
}
// The factor that undoes the scaling.
constexpr float kScaledHalvesFactor = 256.0F;

// The four registers of a fragment: the lane's elements 4 · t to 4 · t + 3 of 16, in the order 0, 2, 1, 3, of two rows.
// `codes` has 32 elements; `half` selects 16.
__device__ __forceinline__ void scaled_fragment(const arch::Vec16& codes, int half, std::uint32_t (&a)[4]) {
  IMP_UNROLL
  for (int row = 0; row < 2; ++row) {
    IMP_UNROLL
    for (int odd = 0; odd < 2; ++odd) a[row + 2 * odd] = scaled_halves(codes.word[row + 2 * half], odd);
  }
}

}  // namespace imp::cuda
