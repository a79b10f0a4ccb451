// The configuration of a vision tower: a tile of an image in, rows of a decoder's input out.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/ceil_div.h"
#include "model/arch/tensor_names.h"
#include "model/config/model_config.h"

namespace imp {

// The tensors of a tower outside its layers.
struct VisionTensors {
  std::string_view patches;     // a convolution over patches, with a bias; without the suffix
  std::string_view positions;   // [patches, hidden]: a learned embedding of each
  std::string_view projection;  // [decoder's hidden, hidden · shuffle²]
};

struct VisionConfig {
  ModelConfig layers;    // over patches, which see each other. All layers use the first layer of a cache.
  int tile_size = 0;     // height and width of a tile, in pixels
  int patch_size = 0;    // of a patch. The pixels behind the last whole patch are not read.
  int shuffle = 0;       // so many rows by so many columns of patches become one cell, side by side ("pixel shuffle")
  int longest_side = 0;  // to which an image is resized before it is divided into tiles
  int width = 0;         // of a cell: the decoder's hidden size
  std::array<float, 3> mean = {}, deviation = {};  // of each colour, from 0 to 1
  TensorNames names;                               // of the layers, and of the norm behind them
  VisionTensors tensors;

  int patches_a_side() const noexcept { return tile_size / patch_size; }
  int n_patches() const noexcept { return patches_a_side() * patches_a_side(); }
  int patch_values() const noexcept { return 3 * patch_size * patch_size; }
  int cells_a_side() const noexcept { return patches_a_side() / shuffle; }
  int n_cells() const noexcept { return cells_a_side() * cells_a_side(); }
  // Of the largest image: its tiles, and, if there are several, the whole image in one more.
  std::int64_t max_image_cells() const noexcept {
    const std::int64_t tiles_a_side = ceil_div(longest_side, tile_size), tiles = tiles_a_side * tiles_a_side;
    return (tiles > 1 ? tiles + 1 : 1) * n_cells();
  }
  int patches_in_cell() const noexcept { return shuffle * shuffle; }
  int cell_width() const noexcept { return layers.hidden_size * patches_in_cell(); }  // before the projection
};

}  // namespace imp
