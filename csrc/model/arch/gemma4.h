// What Gemma 4 and its assistant have in common.
#pragma once

#include "model/arch/fact_reader.h"
#include "model/arch/hf_names.h"

namespace imp {

// Names in a model directory: with experts, and with embeddings of layers.
inline constexpr TensorNames kHfGemma4Names = [] {
  TensorNames names = kHfFourNormNames;
  names.norm_offset = 0;
  names.layer_table = "model.embed_tokens_per_layer.weight";
  names.layer_projection = "model.per_layer_model_projection.weight";
  names.layer_projection_norm = "model.per_layer_projection_norm.weight";
  names.embedding_gate = "per_layer_input_gate";
  names.embedding_output = "per_layer_projection";
  names.post_embedding_norm = "post_per_layer_input_norm";
  names.output_scale = "layer_scalar";
  names.router = "router.proj";
  names.router_norm = "router.scale";
  names.expert_scales = "router.per_expert_scale";
  names.post_dense_norm = "post_feedforward_layernorm_1";
  names.expert_norm = "pre_feedforward_layernorm_2";
  names.post_expert_norm = "post_feedforward_layernorm_2";
  names.experts = "";
  names.expert_gate_up = "experts.gate_up_proj";
  names.expert_down = "experts.down_proj";
  names.stack_suffix = "";
  return names;
}();

// Layers with their windows, heads, RoPEs and output scales. Each has keys and values of its own; none has experts or
// an embedding.
void read_gemma4_layers_gguf(FactReader& facts);
void read_gemma4_layers_hf(FactReader& facts);

}  // namespace imp
