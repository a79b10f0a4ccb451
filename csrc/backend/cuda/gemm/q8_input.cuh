// Rows of x as q8_rows for integer kernels, and the fixed order in which they add scaled blocks.
#pragma once

#include "backend/cuda/device/arch.cuh"
#include "backend/cuda/gemm/tiles.h"

namespace imp::cuda {

// A row has int8 codes, then for each block {float scale; int16 sums of the codes of each half}. k is padded to tiles.
constexpr int kScaledBytes = 8;  // per block, after the codes
constexpr int kCodeBytesOfTile = kTileElements;
constexpr int kRowBytesOfTile = kCodeBytesOfTile + kTileBlocks * kScaledBytes;

// The scale of a block of x, and the sum of its elements.
struct BlockInput {
  float scale, sum;
};
__device__ __forceinline__ BlockInput block_input(std::uint32_t scale_bits, std::uint32_t half_sums) {
  const float scale = __uint_as_float(scale_bits);
  const int sum = static_cast<std::int16_t>(half_sums) + static_cast<std::int16_t>(half_sums >> 16);
  return {scale, scale * static_cast<float>(sum)};
}

// Adds a block to a chain: its exact dot product of codes, and its minimum if the type has one. All kernels with this
// order give equal bits (ReductionId::q8_slices).
template <class Codes>
__device__ __forceinline__ float add_block(float dot, float scale, float min, const BlockInput& x, float chain) {
  chain = fmaf(dot, scale * x.scale, chain);
  return Codes::kHasMin ? fmaf(min, x.sum, chain) : chain;
}

}  // namespace imp::cuda
