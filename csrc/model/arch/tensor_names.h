// A format's tensor names, and its conventions.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace imp {

// The tensors of linear attention.
struct LinearAttentionNames {
  std::string_view qkv = "";
  std::string_view gate = "";
  std::string_view qkv_gate = "";  // both of these in one tensor, by key head; empty: separate
  std::string_view alpha = "";
  std::string_view beta = "";
  std::string_view alpha_beta = "";  // both of these in one tensor, by key head; empty: separate
  std::string_view conv = "";
  std::string_view decay_rates = "";  // the whole name in a layer
  bool decay_rates_are_logarithms = false;
  std::string_view dt_bias = "";  // the whole name in a layer
  std::string_view norm = "";
  std::string_view output = "";
};

// Some checkpoints store a table of angles that follows from the configuration.
inline constexpr std::string_view kAnglesTable = ".rotary_emb.inv_freq";

// How a tensor holds the matrices [n, k] of all experts. Those with blocks, which are parts of rows, are never
// transposed.
enum class StackForm : std::uint8_t {
  rows,
  columns,  // transposed
  either,   // as its shape shows; if n is k, rows
};

// Of what is added to embeddings, and of what is computed behind the pooling.
struct TextNames {
  std::string_view positions = "";
  std::string_view token_types = "";
  std::string_view embedding_norm = "";
  // A projection's name: prefix, number, suffix.
  std::string_view projections = "dense.";
  std::string_view of_projection = ".linear";
  int first_projection = 0;
  std::string_view score_dense = "";   // without suffix
  std::string_view score_output = "";  // the same
  // Tensors that a file may hold but that no vector needs.
  std::array<std::string_view, 3> unused = {};

  std::string projection(std::size_t i) const {
    return std::string(projections) + std::to_string(first_projection + static_cast<int>(i)) +
           std::string(of_projection);
  }
};

// A layer's tensor is called `layer` + its number + "." + the name + ".weight" or ".bias". Numbers begin with
// `first_layer`.
struct TensorNames {
  std::string_view embedding = "";
  std::string_view final_norm = "";
  std::string_view output_head = "";
  std::string_view rope_factors = "";
  std::string_view short_rope_factors = "";
  std::string_view long_rope_factors = "";
  std::string_view layer_table = "";
  std::string_view layer_projection = "";
  std::string_view layer_projection_norm = "";

  std::string_view layer = "";
  int first_layer = 0;
  std::string_view attention_norm = "";
  std::string_view qkv = "";           // q, k and v one above the other, instead of the next three; empty: separate
  std::string_view optional_qkv = "";  // the same, in layers whose file has such a tensor; also of their biases
  std::string_view q = "";
  std::string_view k = "";
  std::string_view v = "";
  std::string_view q_norm = "";
  std::string_view k_norm = "";
  std::string_view sinks = "";  // with its suffix
  std::string_view output = "";
  std::string_view post_attention_norm = "";
  std::string_view ffn_norm = "";
  std::string_view gate_up = "";  // gate and up one above the other, instead of the next two; empty: separate
  std::string_view gate = "";
  std::string_view up = "";
  std::string_view down = "";
  std::string_view post_ffn_norm = "";
  std::string_view embedding_gate = "";
  std::string_view embedding_output = "";
  std::string_view post_embedding_norm = "";
  std::string_view output_scale = "";  // with its suffix, as the next two

  std::string_view router_norm = "";
  std::string_view expert_scales = "";
  std::string_view post_dense_norm = "";
  std::string_view expert_norm = "";
  std::string_view post_expert_norm = "";
  std::string_view router = "";
  std::string_view experts = "";         // prefix of an expert's number and "."; empty: one tensor holds all experts
  std::string_view expert_gate_up = "";  // as gate_up, of all experts in one tensor
  std::string_view optional_expert_gate_up = "";  // the same, in layers whose file has such a tensor
  bool gate_up_in_turn = false;                   // a row of gate, then one of up, and so on
  std::string_view expert_gate = "";
  std::string_view expert_up = "";
  std::string_view expert_down = "";
  // The suffixes of the names of tensors with all experts.
  std::string_view stack_suffix = ".weight";
  std::string_view stack_bias_suffix = ".bias";
  StackForm stack_form = StackForm::rows;
  std::string_view shared_router = "";
  std::string_view shared_gate_up = "";
  std::string_view shared_gate = "";
  std::string_view shared_up = "";
  std::string_view shared_down = "";

  LinearAttentionNames linear = {};
  TextNames text = {};

  float norm_offset = 0;             // added to a norm's weights
  bool rope_halves_apart = false;    // rows of q and k that rotate together are half a head apart, not adjacent
  bool rope_quarters_apart = false;  // they are a quarter of a head apart: each half of a head rotates by itself

  // A tensor that only files with these names have, if the embedding's name does not say it.
  std::string_view marker = "";

  std::string weight(int i, std::string_view name) const { return in_layer(i, name) + ".weight"; }
  std::string bias(int i, std::string_view name) const { return in_layer(i, name) + ".bias"; }
  std::string expert_weight(int i, int expert, std::string_view name) const {
    return in_layer(i, experts) + std::to_string(expert) + "." + std::string(name) + ".weight";
  }
  std::string stack(int i, std::string_view name) const { return in_layer(i, name) + std::string(stack_suffix); }
  std::string stack_bias(int i, std::string_view name) const {
    return in_layer(i, name) + std::string(stack_bias_suffix);
  }
  std::string in_layer(int i, std::string_view name) const {
    return std::string(layer) + std::to_string(first_layer + i) + "." + std::string(name);
  }
  // The layer to which a tensor belongs, or -1.
  int layer_of(std::string_view tensor) const noexcept;
  // Whether a tensor's name has the prefix of these architectures. An unused tensor of this kind means that the model
  // computes something unknown to imp: an error. Any other unused tensor is ignored.
  bool belongs_to_decoder(std::string_view tensor) const noexcept;
};

}  // namespace imp
