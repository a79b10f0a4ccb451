// The facts that towers of several families have under the same keys.
#pragma once

#include "model/arch/vision/vision_family.h"

namespace imp {

// Values of keys that the files of a family may omit.
struct HfTowerDefaults {
  int n_layers = 0, hidden_size = 0, ffn_size = 0, n_heads = 0;
  int tile_size = 0, patch_size = 0;
  int width = 0;  // of a cell: the hidden size of the text part
  float epsilon = 0;
};

// Sizes, norm epsilon, tile, colours and the width of a cell, from a projector's keys.
void read_gguf_tower(VisionFacts& vision);
// Sizes, norm epsilon and tile, from `vision_config`; and the width of a cell.
void read_hf_tower(VisionFacts& vision, const HfTowerDefaults& defaults);

// The layers of SigLIP: LayerNorm, biases, gelu by tanh, no RoPE. Every patch sees all of them.
void set_siglip(VisionFacts& vision);

// Colours and sizes of images, from preprocessor_config.json or from the section of processor_config.json that has the
// same keys. Requires that images are resized by Lanczos' filter and divided into tiles.
void read_hf_images(VisionFacts& vision);

}  // namespace imp
