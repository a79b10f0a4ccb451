// The facts that towers of several families have under the same keys.
#pragma once

#include "model/arch/vision/vision_family.h"

namespace imp {

// A key that the files of a family may omit, and its value then.
struct HfSize {
  std::string_view key;
  int by_default = 0;
};

struct HfTowerSizes {
  HfSize n_layers, hidden_size, ffn_size, n_heads, patch_size;
};

// Sizes, norm epsilon, tile, colours and the width of a cell, from a projector's keys.
void read_gguf_tower(VisionFacts& vision);
// Sizes from `vision_config`.
void read_hf_size(FactReader& facts, std::string_view field, const HfSize& size, std::int64_t limit, int& out);
void read_hf_sizes(VisionFacts& vision, const HfTowerSizes& sizes);
// The hidden size of the text part.
void read_hf_width(VisionFacts& vision, int by_default);

// Heads as wide together as a row.
void set_heads_of_width(FactReader& facts);
// All layers, without RoPE. Every patch sees all of them.
void add_tower_layers(ModelConfig& layers);

// By which half the pairs of a head rotate: those of the first half by the place of their patch on this axis, the
// others by its place on the other one.
enum class Axis : std::uint8_t { row, column };
void rotate_by_places(ModelConfig& layers, double theta, Axis first);

// The layers of SigLIP: LayerNorm, biases, gelu by tanh, no RoPE. Every patch sees all of them.
void set_siglip(VisionFacts& vision);

// A projector's activation must be gelu by tanh.
void require_gelu_tanh(const ModelFile& file);

// A file that says how images are read, and the prefix of its keys.
struct ImageProcessor {
  Metadata metadata;
  std::string prefix;
};

// A filter that resizes images: Pillow's number, and its name.
struct ImageFilter {
  int number = 0;
  std::string_view name;
};
inline constexpr ImageFilter kLanczos = {1, "Lanczos' filter"}, kBilinear = {2, "the bilinear filter"},
                             kBicubic = {3, "the bicubic filter"};

// preprocessor_config.json, or the section of processor_config.json that has the same keys. Reads the colours, and
// requires that images are resized by this filter. Colours that are not normalized are from 0 to 1.
ImageProcessor read_hf_images(VisionFacts& vision, const ImageFilter& filter, bool is_normalized = true);
// Requires that images are divided into tiles, and reads their sizes.
void read_hf_tiles(VisionFacts& vision);

}  // namespace imp
