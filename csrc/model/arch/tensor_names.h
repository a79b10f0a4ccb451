// A format's tensor names, and its conventions.
#pragma once

#include <string>
#include <string_view>

namespace imp {

// A layer's tensor is called `layer` + its number + "." + the name + ".weight" or ".bias".
struct TensorNames {
  std::string_view embedding;
  std::string_view final_norm;
  std::string_view head;
  std::string_view rope_factors;
  std::string_view short_rope_factors;
  std::string_view long_rope_factors;

  std::string_view layer;
  std::string_view attention_norm;
  std::string_view qkv;  // q, k and v one above the other, instead of the next three; empty: separate
  std::string_view q;
  std::string_view k;
  std::string_view v;
  std::string_view q_norm;
  std::string_view k_norm;
  std::string_view output;
  std::string_view post_attention_norm;
  std::string_view ffn_norm;
  std::string_view gate_up;  // gate and up one above the other, instead of the next two; empty: separate
  std::string_view gate;
  std::string_view up;
  std::string_view down;
  std::string_view post_ffn_norm;

  std::string_view router;
  std::string_view experts;         // prefix of an expert's number and "."; empty: one tensor holds all experts
  std::string_view expert_gate_up;  // as gate_up, of all experts in one tensor
  std::string_view expert_gate;
  std::string_view expert_up;
  std::string_view expert_down;
  std::string_view shared_router;
  std::string_view shared_gate_up;
  std::string_view shared_gate;
  std::string_view shared_up;
  std::string_view shared_down;

  float norm_offset = 0;           // added to a norm's weights
  bool rope_halves_apart = false;  // rows of q and k that rotate together are half a head apart, not adjacent

  std::string weight(int i, std::string_view name) const { return in_layer(i, name) + ".weight"; }
  std::string bias(int i, std::string_view name) const { return in_layer(i, name) + ".bias"; }
  std::string expert_weight(int i, int expert, std::string_view name) const {
    return in_layer(i, experts) + std::to_string(expert) + "." + std::string(name) + ".weight";
  }
  // Whether a tensor's name has the prefix of these architectures. An unused tensor of this kind means that the model
  // computes something unknown to imp: an error. Any other unused tensor is ignored.
  bool belongs_to_decoder(std::string_view tensor) const noexcept;

 private:
  std::string in_layer(int i, std::string_view name) const {
    return std::string(layer) + std::to_string(i) + "." + std::string(name);
  }
};

// GGUF uses the same names for all decoders.
inline constexpr TensorNames kGgufNames = {
    .embedding = "token_embd.weight",
    .final_norm = "output_norm.weight",
    .head = "output.weight",
    .rope_factors = "rope_freqs.weight",
    .short_rope_factors = "rope_factors_short.weight",
    .long_rope_factors = "rope_factors_long.weight",
    .layer = "blk.",
    .attention_norm = "attn_norm",
    .qkv = "",
    .q = "attn_q",
    .k = "attn_k",
    .v = "attn_v",
    .q_norm = "attn_q_norm",
    .k_norm = "attn_k_norm",
    .output = "attn_output",
    .post_attention_norm = "post_attention_norm",
    .ffn_norm = "ffn_norm",
    .gate_up = "",
    .gate = "ffn_gate",
    .up = "ffn_up",
    .down = "ffn_down",
    .post_ffn_norm = "post_ffw_norm",
    .router = "ffn_gate_inp",
    .experts = "",
    .expert_gate_up = "",
    .expert_gate = "ffn_gate_exps",
    .expert_up = "ffn_up_exps",
    .expert_down = "ffn_down_exps",
    .shared_router = "ffn_gate_inp_shexp",
    .shared_gate_up = "",
    .shared_gate = "ffn_gate_shexp",
    .shared_up = "ffn_up_shexp",
    .shared_down = "ffn_down_shexp",
};

// The names of the transformers library, with one module per projection.
inline constexpr TensorNames kHfNames = {
    .embedding = "model.embed_tokens.weight",
    .final_norm = "model.norm.weight",
    .head = "lm_head.weight",
    .rope_factors = "",
    .short_rope_factors = "",
    .long_rope_factors = "",
    .layer = "model.layers.",
    .attention_norm = "input_layernorm",
    .qkv = "",
    .q = "self_attn.q_proj",
    .k = "self_attn.k_proj",
    .v = "self_attn.v_proj",
    .q_norm = "self_attn.q_norm",
    .k_norm = "self_attn.k_norm",
    .output = "self_attn.o_proj",
    .post_attention_norm = "",
    .ffn_norm = "post_attention_layernorm",
    .gate_up = "",
    .gate = "mlp.gate_proj",
    .up = "mlp.up_proj",
    .down = "mlp.down_proj",
    .post_ffn_norm = "",
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

constexpr TensorNames gguf_names_of_phi3() {
  TensorNames names = kGgufNames;
  names.qkv = "attn_qkv";
  names.gate_up = "ffn_up";
  return names;
}
inline constexpr TensorNames kGgufPhi3Names = gguf_names_of_phi3();

constexpr TensorNames gguf_names_of_glm4() {
  TensorNames names = kGgufNames;
  names.gate_up = "ffn_up";
  return names;
}
inline constexpr TensorNames kGgufGlm4Names = gguf_names_of_glm4();

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

// Seed-OSS has GGUF's norm of another place before the feed-forward.
constexpr TensorNames gguf_names_of_seed_oss() {
  TensorNames names = kGgufNames;
  names.post_attention_norm = "";
  names.ffn_norm = "post_attention_norm";
  return names;
}
inline constexpr TensorNames kGgufSeedOssNames = gguf_names_of_seed_oss();

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
  return names;
}
constexpr TensorNames hf_names_of_outer_part(const TensorNames& of) {
  TensorNames names = of;
  names.embedding = "language_model.model.embed_tokens.weight";
  names.final_norm = "language_model.model.norm.weight";
  names.head = "language_model.lm_head.weight";
  names.layer = "language_model.model.layers.";
  return names;
}
inline constexpr TensorNames kHfInnerNames = hf_names_of_inner_model(kHfNames);
inline constexpr TensorNames kHfOuterNames = hf_names_of_outer_part(kHfNames);
inline constexpr TensorNames kHfInnerFourNormNames = hf_names_of_inner_model(kHfFourNormNames);
inline constexpr TensorNames kHfOuterFourNormNames = hf_names_of_outer_part(kHfFourNormNames);

}  // namespace imp
