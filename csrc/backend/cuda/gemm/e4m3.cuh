// Codes of F8_E4M3 as float16, by bits: every GPU does it as fast as the newer ones' instruction for it.
#pragma once

#include "backend/cuda/device/arch.cuh"

namespace imp::cuda {

// Bytes 0 and 2 of a word, or (odd) 1 and 3, none of them NaN: exact, 2^8 times smaller.
__device__ __forceinline__ std::uint32_t small_halves(std::uint32_t codes, int odd) {
  const std::uint32_t upper = odd != 0 ? codes : codes << 8;  // a code's sign is its half's
  return arch::and_or(upper, 0x80008000, upper >> 1 & 0x3f803f80);
}
// What such numbers lack.
constexpr float kOfSmallHalves = 256.0F;

// The four registers of a fragment's product: a lane's elements 4 · t to 4 · t + 3 of 16 in the order 0, 2, 1, 3, of
// two rows. `codes` are of 32 elements; `half` is which 16 of them.
__device__ __forceinline__ void small_fragment(const arch::Vec16& codes, int half, std::uint32_t (&a)[4]) {
  IMP_UNROLL
  for (int row = 0; row < 2; ++row) {
    IMP_UNROLL
    for (int odd = 0; odd < 2; ++odd) a[row + 2 * odd] = small_halves(codes.word[row + 2 * half], odd);
  }
}

}  // namespace imp::cuda
