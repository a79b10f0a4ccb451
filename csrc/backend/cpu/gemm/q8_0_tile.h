// One tile of a Q8_0 product: some rows of activations by one panel; plain data.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/gemm/q8_0_blocks.h"

namespace imp::cpu {

struct Tile {
  const PanelBlockQ8_0* weights;
  std::int64_t n_blocks;
  const std::byte* activations;      // the tile's first row
  std::ptrdiff_t activation_stride;  // bytes
  float* out;                        // the tile's first row, at the panel's first column
  std::ptrdiff_t out_stride;         // floats
  int columns;                       // 16, or fewer in the last panel
};

// Whether a tile is the first to read its panel, which then comes from memory, or finds it in a cache.
enum class Reading { first, again };

}  // namespace imp::cpu
