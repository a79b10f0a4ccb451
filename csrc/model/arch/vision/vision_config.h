// The configuration of a vision tower: pixels of a part of an image in, rows of a decoder's input out.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ceil_div.h"
#include "model/arch/tensor_names.h"
#include "model/config/model_config.h"

namespace imp {

// How a family makes parts of an image.
enum class ImageSizing : std::uint8_t {
  tiles,        // tiles of one size, and an overview as large as one of them
  fixed,        // one part of one size
  range,        // one part, whose sides are multiples of a cell and whose area lies in a range
  soft_tokens,  // one part, with as many cells as a number allows
};

constexpr std::string_view name_of(ImageSizing sizing) noexcept {
  constexpr std::array<std::string_view, 4> kNames = {"tiles", "fixed", "range", "soft_tokens"};
  return kNames[static_cast<std::size_t>(sizing)];
}

// Of patches or cells.
struct Grid {
  int rows = 0;
  int columns = 0;

  int count() const noexcept { return rows * columns; }
};

// How a square of patches becomes one row.
enum class Reduction : std::uint8_t {
  side_by_side,  // one after the other, row by row ("pixel shuffle", "merge")
  mean,
};

// Of a reduced cell.
struct CellNorm {
  NormKind kind = NormKind::rms;
  float epsilon = 0;
  std::string tensor;  // without the suffix; empty: it has no weight
  bool has_bias = false;
  float offset = 0;  // added to its weight
};

// Makes a slice of each cell from a reduced square of patches: one product, or two with gelu (by erf) between them.
struct Projector {
  int layer = 0;  // whose output it reads
  std::optional<CellNorm> norm;
  std::string first, second;            // products: tensors without the suffix. Empty: there is no second one.
  bool has_bias = false;                // of the products
  std::string_view suffix = ".weight";  // of the products
  bool is_transposed = false;           // they are stored [inputs, outputs]
};

// The tensors of a tower outside its layers and projectors.
struct VisionTensors {
  std::string_view patches;                  // a convolution over patches; without the suffix
  std::string_view second_frame = {};        // of this convolution, if it is over two; empty: in the same tensor
  std::string_view positions;                // [places, hidden]: learned embeddings
  std::string_view mean = {}, factors = {};  // by which cells are standardized; with the suffix, as `positions`
  bool has_pixels = false;                   // `patches` multiplies pixels with their colours side by side
};

struct VisionConfig {
  ModelConfig layers;  // over patches, which see each other. All layers use the first layer of a cache.
  ImageSizing sizing = ImageSizing::tiles;
  int tile_size = 0;                            // tiles, fixed: height and width of a part, in pixels
  int longest_side = 0;                         // tiles: to which an image is resized before it is divided
  int max_cells = 0;                            // range, soft_tokens: the most of an image that a request may ask for
  std::int64_t min_pixels = 0, max_pixels = 0;  // range: of an image, as the file says
  int soft_tokens = 0;                          // soft_tokens: cells of an image, as the file says
  int patch_size = 0;                           // of a patch. The pixels behind the last whole patch are not read.
  int frames = 1;                               // of the convolution over patches, which all see the same picture
  // The learned positions are a table of so many rows and columns, from whose corners on those of a part are
  // interpolated; 0: there is one for each patch of a part.
  int table_side = 0;
  int axis_places = 0;     // the learned positions are two tables of so many: for columns and for rows, which are added
  bool patch_bias = true;  // of the convolution over patches
  Reduction reduction = Reduction::side_by_side;
  int reduced_side = 1;               // so many rows by so many columns of patches become one cell
  float mean_scale = 1;               // multiplies a mean
  bool is_standardized = false;       // then a mean is: (x - mean) · factors
  std::vector<Projector> projectors;  // the slices of a cell, in order; the first reads the last layer, behind its norm
  int width = 0;                      // of a cell: of all slices
  std::array<float, 3> mean = {}, deviation = {};  // of each colour, from 0 to 1
  TensorNames names;                               // of the layers, and of the norm behind them
  VisionTensors tensors;

  bool has_one_size() const noexcept { return sizing == ImageSizing::tiles || sizing == ImageSizing::fixed; }
  int cell_side() const noexcept { return patch_size * reduced_side; }  // in pixels
  int slice_width() const noexcept { return width / static_cast<int>(projectors.size()); }
  int patch_values() const noexcept { return 3 * patch_size * patch_size; }
  int patches_in_cell() const noexcept { return reduced_side * reduced_side; }
  // Of a reduced cell.
  int cell_width() const noexcept {
    return layers.hidden_size * (reduction == Reduction::side_by_side ? patches_in_cell() : 1);
  }

  // Of a part of this size.
  Grid patches_of(int height, int width_in_pixels) const noexcept {
    return {height / patch_size, width_in_pixels / patch_size};
  }
  Grid cells_of(Grid patches) const noexcept { return {patches.rows / reduced_side, patches.columns / reduced_side}; }
  // Of the largest part.
  int max_part_cells() const noexcept {
    return has_one_size() ? cells_of(patches_of(tile_size, tile_size)).count() : max_cells;
  }
  int max_part_patches() const noexcept { return max_part_cells() * patches_in_cell(); }
  // Of the largest image: all its parts. An image of several tiles has an overview too.
  std::int64_t max_image_cells() const noexcept {
    const std::int64_t a_side = sizing == ImageSizing::tiles ? ceil_div(longest_side, tile_size) : 1;
    const std::int64_t tiles = a_side * a_side;
    return (tiles > 1 ? tiles + 1 : 1) * max_part_cells();
  }
};

}  // namespace imp
