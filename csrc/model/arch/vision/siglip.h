// SigLIP ("Sigmoid Loss for Language Image Pre-Training"), the tower of several families: its tensors and its keys.
#pragma once

#include "model/arch/vision/vision_family.h"

namespace imp {

inline constexpr TensorNames kGgufSiglipNames = {
    .final_norm = "v.post_ln.weight",
    .layer = "v.blk.",
    .attention_norm = "ln1",
    .optional_qkv = "attn_qkv",
    .q = "attn_q",
    .k = "attn_k",
    .v = "attn_v",
    .output = "attn_out",
    .ffn_norm = "ln2",
    .up = "ffn_up",
    .down = "ffn_down",
};

inline constexpr VisionTensors kGgufSiglipTensors = {.patches = "v.patch_embd", .positions = "v.position_embd.weight"};

constexpr TensorNames hf_siglip_names(std::string_view layer, std::string_view final_norm) {
  return {
      .final_norm = final_norm,
      .layer = layer,
      .attention_norm = "layer_norm1",
      .q = "self_attn.q_proj",
      .k = "self_attn.k_proj",
      .v = "self_attn.v_proj",
      .output = "self_attn.out_proj",
      .ffn_norm = "layer_norm2",
      .up = "mlp.fc1",
      .down = "mlp.fc2",
  };
}

// Values of keys that the files of a family may omit.
struct SiglipDefaults {
  int n_layers = 0, hidden_size = 0, ffn_size = 0, n_heads = 0;
  int tile_size = 0, patch_size = 0;
  int width = 0;  // of a cell: the hidden size of the text part
};

void read_gguf_siglip(VisionFacts& vision);
void read_hf_siglip(VisionFacts& vision, const SiglipDefaults& defaults);

// A projector of one product, which reads the patches behind the last layer and its norm.
Projector& add_siglip_projector(VisionFacts& vision, std::string product);

}  // namespace imp
