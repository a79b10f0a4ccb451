// Rows of a file's bytes as the device decodes them: in groups of neighbours, each by one thread.
#pragma once

#include <cstddef>

#include "backend/cuda/device/arch.cuh"
#include "tensor/quant/decode.h"

namespace imp::cuda {

// Elements that are decoded together; those of a float type are alone.
template <class Block>
constexpr int kGroupElements = Block::kElements / Block::kGroups;

// Decodes one group of a row, counted from the row's first, to `out`.
template <class Block>
__device__ __forceinline__ void decode_group(const std::byte* row, int group, float* out) {
  const Block& block = reinterpret_cast<const Block*>(row)[group / Block::kGroups];
  const int in_block = group % Block::kGroups;
  quant::decode_groups(block, in_block, in_block + 1, out - in_block * kGroupElements<Block>);
}

}  // namespace imp::cuda
