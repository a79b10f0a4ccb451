// What a format calls a decoder's tensors.
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

  std::string weight(int i, std::string_view name) const { return in_layer(i, name) + ".weight"; }
  std::string bias(int i, std::string_view name) const { return in_layer(i, name) + ".bias"; }
  // Whether a tensor stands where these architectures keep theirs. One of those that nobody claims means that the
  // model computes something we do not; any other is a stranger that changes nothing.
  bool is_ours(std::string_view tensor) const noexcept;

 private:
  std::string in_layer(int i, std::string_view name) const {
    return std::string(layer) + std::to_string(i) + "." + std::string(name);
  }
};

// GGUF has one set of names for all decoders.
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
};

}  // namespace imp
