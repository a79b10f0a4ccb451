// Lists the tensors of a decoder.
#include "model/weight_places.h"

#include <utility>

namespace imp {
namespace {

class Places {
 public:
  Places(const ModelConfig& config, const TensorNames& names) : config_(config), names_(names) {}
  void matrix(std::string tensor, std::int64_t n, std::int64_t k, Matrix& slot, RowOrder order = RowOrder::file) {
    all_.push_back({.tensor = std::move(tensor), .n = n, .k = k, .slot = &slot, .order = order});
  }
  void experts(std::string tensor, std::int64_t n, std::int64_t k, int n_experts, Stack& slot) {
    all_.push_back({.tensor = std::move(tensor),
                    .use = WeightUse::expert,
                    .n = n,
                    .k = k,
                    .slot = &slot,
                    .n_matrices = n_experts});
  }
  void expert(std::string tensor, std::int64_t n, std::int64_t k, Matrix& slot) {
    all_.push_back({.tensor = std::move(tensor), .use = WeightUse::expert, .n = n, .k = k, .slot = &slot});
  }
  void head(std::string tensor, std::int64_t n, std::int64_t k, Matrix& slot) {
    all_.push_back({.tensor = std::move(tensor), .use = WeightUse::head, .n = n, .k = k, .slot = &slot});
  }
  void table(std::string tensor, std::int64_t n, std::int64_t k, Matrix& slot) {
    all_.push_back({.tensor = std::move(tensor), .use = WeightUse::lookup, .n = n, .k = k, .slot = &slot});
  }
  // The last `n_places` matrices are the parts of one tensor, one above the other.
  void stack_last(std::size_t n_places) {
    std::int64_t n_rows = 0;
    for (std::size_t i = all_.size() - n_places; i < all_.size(); ++i) {
      all_[i].first_row = n_rows;
      n_rows += all_[i].n;
    }
    for (std::size_t i = all_.size() - n_places; i < all_.size(); ++i) all_[i].tensor_rows = n_rows;
  }
  // A norm of q or k, which has no bias.
  void norm(std::string tensor, std::int64_t size, Values& slot) {
    add_vector(std::move(tensor), size, slot);
    all_.back().offset = names_.norm_offset;
  }
  // A norm of the stream in layer i.
  void stream_norm(int i, std::string_view name, NormWeights& slot) {
    norm(names_.weight(i, name), config_.hidden_size, slot.weight);
    if (config_.norm_bias) add_vector(names_.bias(i, name), config_.hidden_size, slot.bias);
  }
  void final_norm(NormWeights& slot) {
    const std::string weight(names_.final_norm);
    norm(weight, config_.hidden_size, slot.weight);
    if (config_.norm_bias) {
      add_vector(weight.substr(0, weight.rfind('.')) + ".bias", config_.hidden_size, slot.bias);
    }
  }
  void bias(std::string tensor, std::int64_t size, Values& slot, RowOrder order = RowOrder::file) {
    add_vector(std::move(tensor), size, slot);
    all_.back().order = order;
  }
  std::vector<WeightPlace> take() && { return std::move(all_); }

 private:
  void add_vector(std::string tensor, std::int64_t size, Values& slot) {
    all_.push_back({.tensor = std::move(tensor), .use = WeightUse::vector, .n = size, .k = 1, .slot = &slot});
  }
  const ModelConfig& config_;
  const TensorNames& names_;
  std::vector<WeightPlace> all_;
};

// The reordering of q's and k's rows that gives the order of the configured RoPE.
RowOrder rotated_order(const ModelConfig& config, const TensorNames& names) {
  const bool side_by_side = config.ropes.front().style == RopeStyle::adjacent;
  return side_by_side && names.rope_halves_apart ? RowOrder::pairs_apart : RowOrder::file;
}

void place_qkv(Places& places, const ModelConfig& config, const TensorNames& names, int i, LayerWeights& layer) {
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t q_width = std::int64_t{config.n_heads} * config.head_dim;
  const std::int64_t kv_width = std::int64_t{config.n_kv_heads} * config.head_dim;
  const RowOrder rotated = rotated_order(config, names);
  const bool fused = !names.qkv.empty();
  const auto tensor = [&](std::string_view name) { return names.weight(i, fused ? names.qkv : name); };
  places.matrix(tensor(names.q), q_width, hidden, layer.q, rotated);
  places.matrix(tensor(names.k), kv_width, hidden, layer.k, rotated);
  places.matrix(tensor(names.v), kv_width, hidden, layer.v);
  if (fused) places.stack_last(3);
  if (config.qkv_bias) {
    places.bias(names.bias(i, names.q), q_width, layer.q_bias, rotated);
    places.bias(names.bias(i, names.k), kv_width, layer.k_bias, rotated);
    places.bias(names.bias(i, names.v), kv_width, layer.v_bias);
  }
  if (config.qk_norm != QkNorm::none) {
    const bool wide = config.qk_norm == QkNorm::width;
    places.norm(names.weight(i, names.q_norm), wide ? q_width : config.head_dim, layer.q_norm);
    places.norm(names.weight(i, names.k_norm), wide ? kv_width : config.head_dim, layer.k_norm);
  }
}

void add_attention(Places& places, const ModelConfig& config, const TensorNames& names, int i, LayerWeights& layer) {
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t q_width = std::int64_t{config.n_heads} * config.head_dim;
  if (config.norm_placement != NormPlacement::post) places.stream_norm(i, names.attention_norm, layer.attention_norm);
  place_qkv(places, config, names, i, layer);
  places.matrix(names.weight(i, names.output), hidden, q_width, layer.output);
  if (config.output_bias) places.bias(names.bias(i, names.output), hidden, layer.output_bias);
  if (config.norm_placement != NormPlacement::pre)
    places.stream_norm(i, names.post_attention_norm, layer.post_attention_norm);
}

// The experts' matrices of one kind: one tensor with all of them, or one tensor for each.
void add_expert_matrices(Places& places, const ModelConfig& config, const TensorNames& names, int i,
                         std::string_view name, std::int64_t n, std::int64_t k, Stack& slot) {
  const int n_experts = config.experts.n_experts;
  if (names.experts.empty()) return places.experts(names.weight(i, name), n, k, n_experts, slot);
  slot.resize(static_cast<std::size_t>(n_experts));
  for (int expert = 0; expert < n_experts; ++expert) {
    places.expert(names.expert_weight(i, expert, name), n, k, slot[static_cast<std::size_t>(expert)]);
  }
}

void place_shared_expert(Places& places, const ModelConfig& config, const TensorNames& names, int i,
                         LayerWeights& layer) {
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t shared = config.shared_ffn_size;
  const bool fused = !names.shared_gate_up.empty();
  const auto tensor = [&](std::string_view name) { return names.weight(i, fused ? names.shared_gate_up : name); };
  if (config.shared_is_gated) places.matrix(names.weight(i, names.shared_router), 1, hidden, layer.shared_router);
  places.matrix(tensor(names.shared_gate), shared, hidden, layer.shared_gate);
  places.matrix(tensor(names.shared_up), shared, hidden, layer.shared_up);
  if (fused) places.stack_last(2);
  places.matrix(names.weight(i, names.shared_down), hidden, shared, layer.shared_down);
}

void place_experts(Places& places, const ModelConfig& config, const TensorNames& names, int i, LayerWeights& layer) {
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t ffn = config.expert_ffn_size;
  const bool fused = !names.expert_gate_up.empty();
  places.matrix(names.weight(i, names.router), config.experts.n_experts, hidden, layer.router);
  add_expert_matrices(places, config, names, i, fused ? names.expert_gate_up : names.expert_gate, ffn, hidden,
                      layer.expert_gates);
  add_expert_matrices(places, config, names, i, fused ? names.expert_gate_up : names.expert_up, ffn, hidden,
                      layer.expert_ups);
  if (fused) places.stack_last(2);
  add_expert_matrices(places, config, names, i, names.expert_down, hidden, ffn, layer.expert_downs);
  if (config.shared_ffn_size > 0) place_shared_expert(places, config, names, i, layer);
}

void place_gate_and_up(Places& places, const ModelConfig& config, const TensorNames& names, int i,
                       LayerWeights& layer) {
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t ffn = config.ffn_size;
  if (config.plain_activation) return places.matrix(names.weight(i, names.up), ffn, hidden, layer.up);
  const bool fused = !names.gate_up.empty();
  places.matrix(names.weight(i, fused ? names.gate_up : names.gate), ffn, hidden, layer.gate);
  places.matrix(names.weight(i, fused ? names.gate_up : names.up), ffn, hidden, layer.up);
  if (fused) places.stack_last(2);
}

void place_dense(Places& places, const ModelConfig& config, const TensorNames& names, int i, LayerWeights& layer) {
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t ffn = config.ffn_size;
  place_gate_and_up(places, config, names, i, layer);
  places.matrix(names.weight(i, names.down), hidden, ffn, layer.down);
  if (!config.ffn_bias) return;
  if (!config.plain_activation) places.bias(names.bias(i, names.gate), ffn, layer.gate_bias);
  places.bias(names.bias(i, names.up), ffn, layer.up_bias);
  places.bias(names.bias(i, names.down), hidden, layer.down_bias);
}

void place_feed_forward(Places& places, const ModelConfig& config, const TensorNames& names, int i,
                        LayerWeights& layer) {
  const bool has_norm = config.norm_placement != NormPlacement::post && !config.parallel_blocks;
  if (has_norm) places.stream_norm(i, names.ffn_norm, layer.ffn_norm);
  const bool has_experts = config.layers[static_cast<std::size_t>(i)].has_experts;
  (has_experts ? place_experts : place_dense)(places, config, names, i, layer);
  if (config.norm_placement != NormPlacement::pre) places.stream_norm(i, names.post_ffn_norm, layer.post_ffn_norm);
}

}  // namespace

std::string_view name_of(WeightUse use) {
  switch (use) {
    case WeightUse::product:
      return "product";
    case WeightUse::expert:
      return "expert";
    case WeightUse::head:
      return "head";
    case WeightUse::lookup:
      return "lookup";
    case WeightUse::vector:
      return "vector";
  }
  return "";
}

std::vector<WeightPlace> weight_places(const ModelConfig& config, const TensorNames& names, Weights& weights) {
  Places places(config, names);
  weights.layers.resize(static_cast<std::size_t>(config.n_layers));
  const std::string embedding(names.embedding);
  if (config.tied_head) {
    places.head(embedding, config.vocab_size, config.hidden_size, weights.embedding);
  } else {
    places.table(embedding, config.vocab_size, config.hidden_size, weights.embedding);
  }
  for (int i = 0; i < config.n_layers; ++i) {
    LayerWeights& layer = weights.layers[static_cast<std::size_t>(i)];
    add_attention(places, config, names, i, layer);
    place_feed_forward(places, config, names, i, layer);
  }
  places.final_norm(weights.final_norm);
  if (!config.tied_head) {
    places.head(std::string(names.head), config.vocab_size, config.hidden_size, weights.head);
  }
  return std::move(places).take();
}

}  // namespace imp
