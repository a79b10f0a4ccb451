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

  std::string_view layer;
  std::string_view attention_norm;
  std::string_view q;
  std::string_view k;
  std::string_view v;
  std::string_view q_norm;
  std::string_view k_norm;
  std::string_view output;
  std::string_view post_attention_norm;
  std::string_view ffn_norm;
  std::string_view gate;
  std::string_view up;
  std::string_view down;
  std::string_view post_ffn_norm;

  std::string_view router;
  std::string_view experts;  // prefix of an expert's number and "."; empty: one tensor holds all experts
  std::string_view expert_gate;
  std::string_view expert_up;
  std::string_view expert_down;
  std::string_view shared_router;
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
    .layer = "blk.",
    .attention_norm = "attn_norm",
    .q = "attn_q",
    .k = "attn_k",
    .v = "attn_v",
    .q_norm = "attn_q_norm",
    .k_norm = "attn_k_norm",
    .output = "attn_output",
    .post_attention_norm = "post_attention_norm",
    .ffn_norm = "ffn_norm",
    .gate = "ffn_gate",
    .up = "ffn_up",
    .down = "ffn_down",
    .post_ffn_norm = "post_ffw_norm",
    .router = "ffn_gate_inp",
    .experts = "",
    .expert_gate = "ffn_gate_exps",
    .expert_up = "ffn_up_exps",
    .expert_down = "ffn_down_exps",
    .shared_router = "ffn_gate_inp_shexp",
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
    .layer = "model.layers.",
    .attention_norm = "input_layernorm",
    .q = "self_attn.q_proj",
    .k = "self_attn.k_proj",
    .v = "self_attn.v_proj",
    .q_norm = "self_attn.q_norm",
    .k_norm = "self_attn.k_norm",
    .output = "self_attn.o_proj",
    .post_attention_norm = "",
    .ffn_norm = "post_attention_layernorm",
    .gate = "mlp.gate_proj",
    .up = "mlp.up_proj",
    .down = "mlp.down_proj",
    .post_ffn_norm = "",
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

}  // namespace imp
