// The tensor names of checkpoints of the transformers library.
#pragma once

#include <string_view>

#include "model/arch/tensor_names.h"

namespace imp {

// The names of the transformers library, with one module per projection.
inline constexpr TensorNames kHfNames = {
    .embedding = "model.embed_tokens.weight",
    .final_norm = "model.norm.weight",
    .head = "lm_head.weight",
    .rope_factors = "",
    .short_rope_factors = "",
    .long_rope_factors = "",
    .layer_table = "",
    .layer_projection = "",
    .layer_projection_norm = "",
    .layer = "model.layers.",
    .attention_norm = "input_layernorm",
    .qkv = "",
    .q = "self_attn.q_proj",
    .k = "self_attn.k_proj",
    .v = "self_attn.v_proj",
    .q_norm = "self_attn.q_norm",
    .k_norm = "self_attn.k_norm",
    .sinks = "self_attn.sinks",
    .output = "self_attn.o_proj",
    .post_attention_norm = "",
    .ffn_norm = "post_attention_layernorm",
    .gate_up = "",
    .gate = "mlp.gate_proj",
    .up = "mlp.up_proj",
    .down = "mlp.down_proj",
    .post_ffn_norm = "",
    .embedding_gate = "",
    .embedding_output = "",
    .post_embedding_norm = "",
    .output_scale = "",
    .router_norm = "",
    .expert_scales = "",
    .post_dense_norm = "",
    .expert_norm = "",
    .post_expert_norm = "",
    .router = "mlp.gate",
    .experts = "mlp.experts.",
    .expert_gate_up = "",
    .expert_gate = "gate_proj",
    .expert_up = "up_proj",
    .expert_down = "down_proj",
    .shared_router = "mlp.shared_expert_gate",
    .shared_gate_up = "",
    .shared_gate = "mlp.shared_expert.gate_proj",
    .shared_up = "mlp.shared_expert.up_proj",
    .shared_down = "mlp.shared_expert.down_proj",
    .rope_halves_apart = true,
};

// Mixtral has its own names for experts.
constexpr TensorNames hf_names_of_mixtral() {
  TensorNames names = kHfNames;
  names.router = "block_sparse_moe.gate";
  names.experts = "block_sparse_moe.experts.";
  names.expert_gate = "w1";
  names.expert_up = "w3";
  names.expert_down = "w2";
  return names;
}
inline constexpr TensorNames kHfMixtralNames = hf_names_of_mixtral();

// Four norms per layer. Their weights are stored minus one.
constexpr TensorNames hf_names_with_four_norms() {
  TensorNames names = kHfNames;
  names.post_attention_norm = "post_attention_layernorm";
  names.ffn_norm = "pre_feedforward_layernorm";
  names.post_ffn_norm = "post_feedforward_layernorm";
  names.norm_offset = 1;
  return names;
}
inline constexpr TensorNames kHfFourNormNames = hf_names_with_four_norms();

// Norms only after attention and feed-forward.
constexpr TensorNames hf_names_with_post_norms() {
  TensorNames names = kHfNames;
  names.post_attention_norm = "post_attention_layernorm";
  names.post_ffn_norm = "post_feedforward_layernorm";
  return names;
}
inline constexpr TensorNames kHfPostNormNames = hf_names_with_post_norms();

// Phi 3: one tensor for q, k and v, one for gate and up.
constexpr TensorNames hf_names_of_phi3() {
  TensorNames names = kHfNames;
  names.qkv = "self_attn.qkv_proj";
  names.gate_up = "mlp.gate_up_proj";
  return names;
}
inline constexpr TensorNames kHfPhi3Names = hf_names_of_phi3();

constexpr TensorNames hf_names_of_glm4() {
  TensorNames names = kHfNames;
  names.post_attention_norm = "post_self_attn_layernorm";
  names.post_ffn_norm = "post_mlp_layernorm";
  names.gate_up = "mlp.gate_up_proj";
  names.rope_halves_apart = false;
  return names;
}
inline constexpr TensorNames kHfGlm4Names = hf_names_of_glm4();

// Checkpoints whose rotated pairs are side by side.
constexpr TensorNames hf_names_with_adjacent_pairs() {
  TensorNames names = kHfNames;
  names.rope_halves_apart = false;
  return names;
}
inline constexpr TensorNames kHfAdjacentNames = hf_names_with_adjacent_pairs();

// Granite's experts: one tensor for gate and up of all of them.
constexpr TensorNames hf_names_of_granite_moe() {
  TensorNames names = kHfNames;
  names.router = "block_sparse_moe.router.layer";
  names.experts = "";
  names.expert_gate_up = "block_sparse_moe.input_linear";
  names.expert_down = "block_sparse_moe.output_linear";
  names.shared_gate_up = "shared_mlp.input_linear";
  names.shared_down = "shared_mlp.output_linear";
  return names;
}
inline constexpr TensorNames kHfGraniteMoeNames = hf_names_of_granite_moe();

// Granite 4 without experts: its feed-forward has the names of a shared expert.
constexpr TensorNames hf_names_of_granite_hybrid() {
  TensorNames names = kHfNames;
  names.gate_up = "shared_mlp.input_linear";
  names.down = "shared_mlp.output_linear";
  return names;
}
inline constexpr TensorNames kHfGraniteHybridNames = hf_names_of_granite_hybrid();

// gpt-oss: tensors with all experts, whose names have no suffix.
constexpr TensorNames hf_names_of_gpt_oss() {
  TensorNames names = kHfNames;
  names.router = "mlp.router";
  names.experts = "";
  names.expert_gate_up = "mlp.experts.gate_up_proj";
  names.gate_up_in_turn = true;
  names.expert_down = "mlp.experts.down_proj";
  names.stack_suffix = "";
  names.stack_bias_suffix = "_bias";
  names.stack_form = StackForm::columns;
  return names;
}
inline constexpr TensorNames kHfGptOssNames = hf_names_of_gpt_oss();

// Qwen 3 VL: the same, where gate and up lie one above the other.
constexpr TensorNames hf_names_of_qwen3_vl_moe() {
  TensorNames names = kHfGptOssNames;
  names.router = "mlp.gate";
  names.gate_up_in_turn = false;
  names.stack_form = StackForm::either;
  return names;
}
inline constexpr TensorNames kHfQwen3VlMoeNames = hf_names_of_qwen3_vl_moe();

constexpr LinearAttentionNames kHfLinearNames = {
    .qkv = "linear_attn.in_proj_qkv",
    .gate = "linear_attn.in_proj_z",
    .qkv_gate = "",
    .alpha = "linear_attn.in_proj_a",
    .beta = "linear_attn.in_proj_b",
    .alpha_beta = "",
    .conv = "linear_attn.conv1d",
    .decay_rates = "linear_attn.A_log",
    .decay_rates_are_logarithms = true,
    .dt_bias = "linear_attn.dt_bias",
    .norm = "linear_attn.norm",
    .output = "linear_attn.out_proj",
};
constexpr TensorNames hf_names_of_qwen3_5() {
  TensorNames names = kHfNames;
  names.linear = kHfLinearNames;
  names.norm_offset = 1;
  return names;
}
inline constexpr TensorNames kHfQwen35Names = hf_names_of_qwen3_5();

constexpr TensorNames hf_names_of_qwen3_next() {
  TensorNames names = kHfQwen35Names;
  names.linear.qkv_gate = "linear_attn.in_proj_qkvz";
  names.linear.alpha_beta = "linear_attn.in_proj_ba";
  return names;
}
inline constexpr TensorNames kHfQwen3NextNames = hf_names_of_qwen3_next();

constexpr TensorNames hf_names_of_hunyuan() {
  TensorNames names = kHfNames;
  names.q_norm = "self_attn.query_layernorm";
  names.k_norm = "self_attn.key_layernorm";
  return names;
}
inline constexpr TensorNames kHfHunyuanNames = hf_names_of_hunyuan();

constexpr TensorNames hf_names_of_gemma() {
  TensorNames names = kHfNames;
  names.norm_offset = 1;
  return names;
}
inline constexpr TensorNames kHfGemmaNames = hf_names_of_gemma();

// Gemma 4: with experts, and with embeddings of its layers.
constexpr TensorNames hf_names_of_gemma4() {
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
}
inline constexpr TensorNames kHfGemma4Names = hf_names_of_gemma4();

constexpr TensorNames hf_names_of_starcoder2() {
  TensorNames names = kHfNames;
  names.up = "mlp.c_fc";
  names.down = "mlp.c_proj";
  return names;
}
inline constexpr TensorNames kHfStarcoder2Names = hf_names_of_starcoder2();

constexpr TensorNames hf_names_of_apertus() {
  TensorNames names = kHfNames;
  names.attention_norm = "attention_layernorm";
  names.ffn_norm = "feedforward_layernorm";
  return names;
}
inline constexpr TensorNames kHfApertusNames = hf_names_of_apertus();

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
  names.head = "language_model.lm_head.weight";
  names.layer = "language_model.model.layers.";
  if (names.layer_table.empty()) return names;
  names.layer_table = "language_model.model.embed_tokens_per_layer.weight";
  names.layer_projection = "language_model.model.per_layer_model_projection.weight";
  names.layer_projection_norm = "language_model.model.per_layer_projection_norm.weight";
  return names;
}
inline constexpr TensorNames kHfInnerNames = hf_names_of_inner_model(kHfNames);
inline constexpr TensorNames kHfOuterNames = hf_names_of_outer_part(kHfNames);
inline constexpr TensorNames kHfInnerGemma4Names = hf_names_of_inner_model(kHfGemma4Names);
inline constexpr TensorNames kHfOuterGemma4Names = hf_names_of_outer_part(kHfGemma4Names);
inline constexpr TensorNames kHfInnerQwen3VlMoeNames = hf_names_of_inner_model(kHfQwen3VlMoeNames);
inline constexpr TensorNames kHfOuterQwen3VlMoeNames = hf_names_of_outer_part(kHfQwen3VlMoeNames);
inline constexpr TensorNames kHfInnerQwen35Names = hf_names_of_inner_model(kHfQwen35Names);

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
inline constexpr TensorNames kHfInnerQwen35StackNames =
    hf_names_with_expert_stacks(kHfInnerQwen35Names, "model.language_model.layers.0.mlp.experts.gate_up_proj");

inline constexpr TensorNames kHfInnerFourNormNames = hf_names_of_inner_model(kHfFourNormNames);
inline constexpr TensorNames kHfOuterFourNormNames = hf_names_of_outer_part(kHfFourNormNames);

}  // namespace imp
