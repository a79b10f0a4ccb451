// Decodes rows in a file's format on the device: one thread per group of neighbouring elements.
#pragma once

#include <cstddef>

#include "backend/cuda/device/arch.cuh"
#include "tensor/quant/decode.h"

namespace imp::cuda {

// Elements that are decoded together; one for float types.
template <class Block>
constexpr int kGroupElements = Block::kElements / Block::kGroups;

// Decodes a group of a row, numbered from the row's start, to `out`.
template <class Block>
__device__ __forceinline__ void decode_group(const std::byte* row, int group, float* out) {
  const Block& block = reinterpret_cast<const Block*>(row)[group / Block::kGroups];
  const int in_block = group % Block::kGroups;
  quant::decode_groups(block, in_block, in_block + 1, out - in_block * kGroupElements<Block>);
}

}  // namespace imp::cuda
