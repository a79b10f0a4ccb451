// The tensor names of checkpoints of the transformers library.
#pragma once

#include <string_view>

#include "model/arch/tensor_names.h"

namespace imp {

// The names of the transformers library, with one module per projection.
inline constexpr TensorNames kHfNames = {
    .embedding = "model.embed_tokens.weight",
    .final_norm = "model.norm.weight",
    .output_head = "lm_head.weight",
    .layer = "model.layers.",
    .attention_norm = "input_layernorm",
    .q = "self_attn.q_proj",
    .k = "self_attn.k_proj",
    .v = "self_attn.v_proj",
    .q_norm = "self_attn.q_norm",
    .k_norm = "self_attn.k_norm",
    .sinks = "self_attn.sinks",
    .output = "self_attn.o_proj",
    .ffn_norm = "post_attention_layernorm",
    .gate = "mlp.gate_proj",
    .up = "mlp.up_proj",
    .down = "mlp.down_proj",
    .router = "mlp.gate",
    .experts = "mlp.experts.",
    .expert_gate = "gate_proj",
    .expert_up = "up_proj",
    .expert_down = "down_proj",
    .shared_router = "mlp.shared_expert_gate",
    .shared_gate = "mlp.shared_expert.gate_proj",
    .shared_up = "mlp.shared_expert.up_proj",
    .shared_down = "mlp.shared_expert.down_proj",
    .rope_halves_apart = true,
};

// Four norms per layer. Their weights are stored minus one.
inline constexpr TensorNames kHfFourNormNames = [] {
  TensorNames names = kHfNames;
  names.post_attention_norm = "post_attention_layernorm";
  names.ffn_norm = "pre_feedforward_layernorm";
  names.post_ffn_norm = "post_feedforward_layernorm";
  names.norm_offset = 1;
  return names;
}();

// Norms only after attention and feed-forward.
inline constexpr TensorNames kHfPostNormNames = [] {
  TensorNames names = kHfNames;
  names.post_attention_norm = "post_attention_layernorm";
  names.post_ffn_norm = "post_feedforward_layernorm";
  return names;
}();

// Checkpoints whose rotated pairs are side by side.
inline constexpr TensorNames kHfAdjacentNames = [] {
  TensorNames names = kHfNames;
  names.rope_halves_apart = false;
  return names;
}();

constexpr LinearAttentionNames kHfLinearNames = {
    .qkv = "linear_attn.in_proj_qkv",
    .gate = "linear_attn.in_proj_z",
    .alpha = "linear_attn.in_proj_a",
    .beta = "linear_attn.in_proj_b",
    .conv = "linear_attn.conv1d",
    .decay_rates = "linear_attn.A_log",
    .decay_rates_are_logarithms = true,
    .dt_bias = "linear_attn.dt_bias",
    .norm = "linear_attn.norm",
    .output = "linear_attn.out_proj",
};
inline constexpr TensorNames kHfQwen35Names = [] {
  TensorNames names = kHfNames;
  names.linear = kHfLinearNames;
  names.norm_offset = 1;
  return names;
}();

// The text part of a larger model, under either of two prefixes.
constexpr TensorNames hf_names_of_inner_model(const TensorNames& of) {
  TensorNames names = of;
  names.embedding = "model.language_model.embed_tokens.weight";
  names.final_norm = "model.language_model.norm.weight";
  names.layer = "model.language_model.layers.";
  if (names.layer_table.empty()) return names;
  names.layer_table = "model.language_model.embed_tokens_per_layer.weight";
  names.layer_projection = "model.language_model.per_layer_model_projection.weight";
  names.layer_projection_norm = "model.language_model.per_layer_projection_norm.weight";
  return names;
}
constexpr TensorNames hf_names_of_outer_part(const TensorNames& of) {
  TensorNames names = of;
  names.embedding = "language_model.model.embed_tokens.weight";
  names.final_norm = "language_model.model.norm.weight";
  names.output_head = "language_model.lm_head.weight";
  names.layer = "language_model.model.layers.";
  if (names.layer_table.empty()) return names;
  names.layer_table = "language_model.model.embed_tokens_per_layer.weight";
  names.layer_projection = "language_model.model.per_layer_model_projection.weight";
  names.layer_projection_norm = "language_model.model.per_layer_projection_norm.weight";
  return names;
}
// A checkpoint of the decoder without its head, as embedding models often are.
constexpr TensorNames hf_names_of_bare_decoder(const TensorNames& of) {
  TensorNames names = of;
  names.embedding = "embed_tokens.weight";
  names.final_norm = "norm.weight";
  names.layer = "layers.";
  return names;
}
inline constexpr TensorNames kHfBareNames = hf_names_of_bare_decoder(kHfNames);
inline constexpr TensorNames kHfInnerNames = hf_names_of_inner_model(kHfNames);
inline constexpr TensorNames kHfOuterNames = hf_names_of_outer_part(kHfNames);

// One tensor with the gates and ups of all experts, and one with their downs.
constexpr TensorNames hf_names_with_expert_stacks(const TensorNames& of, std::string_view marker) {
  TensorNames names = of;
  names.experts = "";
  names.expert_gate_up = "mlp.experts.gate_up_proj";
  names.expert_down = "mlp.experts.down_proj";
  names.stack_suffix = "";
  names.marker = marker;
  return names;
}
inline constexpr TensorNames kHfQwen35StackNames =
    hf_names_with_expert_stacks(kHfQwen35Names, "model.layers.0.mlp.experts.gate_up_proj");

}  // namespace imp
