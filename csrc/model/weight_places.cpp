// Lists the tensors of a decoder.
#include "model/weight_places.h"

#include <cmath>
#include <utility>

namespace imp {
namespace {

class Places {
 public:
  Places(const ModelFile& file, const ModelConfig& config, const TensorNames& names)
      : file_(file), config_(config), names_(names) {}
  bool has(const std::string& tensor) const { return file_.find(tensor) != nullptr; }
  void matrix(std::string tensor, std::int64_t n, std::int64_t k, Matrix& slot, RowOrder order = RowOrder::file) {
    all_.push_back({.tensor = std::move(tensor), .n = n, .k = k, .slot = &slot, .order = order});
  }
  void experts(std::string tensor, std::int64_t n, std::int64_t k, int n_experts, Stack& slot) {
    all_.push_back({.tensor = std::move(tensor),
                    .use = WeightUse::expert,
                    .n = n,
                    .k = k,
                    .slot = &slot,
                    .n_matrices = n_experts,
                    .form = names_.stack_form});
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
  // The last `n_places` matrices are the last parts of one tensor, one above the other from `first_row` on.
  void stack_last(std::size_t n_places, std::int64_t first_row = 0) {
    std::int64_t n_rows = first_row;
    for (std::size_t i = all_.size() - n_places; i < all_.size(); ++i) {
      all_[i].first_row = n_rows;
      n_rows += all_[i].n;
    }
    for (std::size_t i = all_.size() - n_places; i < all_.size(); ++i) all_[i].tensor_rows = n_rows;
  }
  // Makes the last matrix a part of a tensor with tensor_rows rows: groups of rows from `first_row` on.
  void group_last(std::int64_t first_row, std::int64_t tensor_rows, const RowGroups& groups) {
    all_.back().first_row = first_row;
    all_.back().tensor_rows = tensor_rows;
    all_.back().groups = groups;
  }
  // Combines the last two matrices, gate and up of experts, into one tensor. Their rows may alternate.
  void join_gate_and_up() {
    stack_last(2);
    if (!names_.gate_up_in_turn) return;
    for (std::size_t i = 0; i < 2; ++i) {
      WeightPlace& place = all_[all_.size() - 2 + i];
      place.first_row = static_cast<std::int64_t>(i);
      place.groups = {.size = 1, .stride = 2};
    }
  }
  // A norm of q or k, which has no bias.
  void norm(std::string tensor, std::int64_t size, Values& slot) {
    add_vector(std::move(tensor), size, slot);
    all_.back().offset = names_.norm_offset;
  }
  // Norms of q or k in one tensor, one for each head.
  void head_norms(std::string tensor, int head_dim, int n_heads, Values& slot) {
    norm(std::move(tensor), head_dim, slot);
    all_.back().n_matrices = n_heads;
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
  // `tensor` includes the suffix. The caller may set how the values are changed.
  WeightPlace& values(std::string tensor, std::int64_t size, Values& slot) {
    add_vector(std::move(tensor), size, slot);
    return all_.back();
  }
  // A vector for all experts, in one tensor.
  void biases(std::string tensor, std::int64_t size, int n_experts, Values& slot) {
    add_vector(std::move(tensor), size, slot);
    all_.back().n_matrices = n_experts;
  }
  std::vector<WeightPlace> take() && { return std::move(all_); }

 private:
  void add_vector(std::string tensor, std::int64_t size, Values& slot) {
    all_.push_back({.tensor = std::move(tensor), .use = WeightUse::vector, .n = size, .k = 1, .slot = &slot});
  }
  const ModelFile& file_;
  const ModelConfig& config_;
  const TensorNames& names_;
  std::vector<WeightPlace> all_;
};

// The reordering of q's and k's rows that gives the order of the configured RoPE.
RowOrder rotated_order(const ModelConfig& config, const TensorNames& names) {
  const bool side_by_side = config.ropes.front().style == RopeStyle::adjacent;
  return side_by_side && names.rope_halves_apart ? RowOrder::pairs_apart : RowOrder::file;
}

// One tensor of so many rows that begins with those of q and of the gate, head by head.
void place_gated_q(Places& places, const ModelConfig& config, const std::string& tensor, std::int64_t n_rows,
                   int head_dim, LayerWeights& layer) {
  const std::int64_t width = std::int64_t{config.n_heads} * head_dim;
  const RowGroups groups = {.size = head_dim, .stride = 2 * std::int64_t{head_dim}};
  places.matrix(tensor, width, config.hidden_size, layer.q);
  places.group_last(0, n_rows, groups);
  places.matrix(tensor, width, config.hidden_size, layer.output_gate);
  places.group_last(head_dim, n_rows, groups);
}

void place_qkv_biases(Places& places, const ModelConfig& config, const TensorNames& names, int i, LayerWeights& layer) {
  const LayerConfig& shape = config.layers[static_cast<std::size_t>(i)];
  const std::int64_t q_width = std::int64_t{config.n_heads} * shape.head_dim;
  const std::int64_t kv_width = std::int64_t{shape.n_kv_heads} * shape.head_dim;
  const bool has_kv = !shape.shares_kv, has_v = has_kv && !shape.values_are_keys;
  const RowOrder rotated = rotated_order(config, names);
  const bool fused = has_v && !names.optional_qkv.empty() && places.has(names.bias(i, names.optional_qkv));
  const auto tensor = [&](std::string_view name) { return names.bias(i, fused ? names.optional_qkv : name); };
  places.bias(tensor(names.q), q_width, layer.q_bias, rotated);
  if (has_kv) places.bias(tensor(names.k), kv_width, layer.k_bias, rotated);
  if (has_v) places.bias(tensor(names.v), kv_width, layer.v_bias);
  if (fused) places.stack_last(3);
}

// The weights of the norms of q and k.
void place_qk_norms(Places& places, const ModelConfig& config, const TensorNames& names, int i, LayerWeights& layer) {
  const LayerConfig& shape = config.layers[static_cast<std::size_t>(i)];
  const std::string q = names.weight(i, names.q_norm), k = names.weight(i, names.k_norm);
  if (config.qk_norm == QkNorm::layer) {
    places.head_norms(q, shape.head_dim, config.n_heads, layer.q_norm);
    if (!shape.shares_kv) places.head_norms(k, shape.head_dim, shape.n_kv_heads, layer.k_norm);
    return;
  }
  const bool wide = config.qk_norm == QkNorm::width;
  places.norm(q, std::int64_t{wide ? config.n_heads : 1} * shape.head_dim, layer.q_norm);
  if (!shape.shares_kv) places.norm(k, std::int64_t{wide ? shape.n_kv_heads : 1} * shape.head_dim, layer.k_norm);
}

void place_qkv(Places& places, const ModelConfig& config, const TensorNames& names, int i, LayerWeights& layer) {
  const std::int64_t hidden = config.hidden_size;
  const LayerConfig& shape = config.layers[static_cast<std::size_t>(i)];
  const std::int64_t q_width = std::int64_t{config.n_heads} * shape.head_dim;
  const std::int64_t kv_width = std::int64_t{shape.n_kv_heads} * shape.head_dim;
  const bool has_kv = !shape.shares_kv, has_v = has_kv && !shape.values_are_keys;
  const RowOrder rotated = rotated_order(config, names);
  const bool has_optional = has_v && !names.optional_qkv.empty() && places.has(names.weight(i, names.optional_qkv));
  const std::string_view fused = has_optional ? names.optional_qkv : names.qkv;
  const auto tensor = [&](std::string_view name) { return names.weight(i, fused.empty() ? name : fused); };
  const std::int64_t q_rows = config.output_gate ? 2 * q_width : q_width;
  if (config.output_gate) {
    const std::int64_t n_rows = fused.empty() ? q_rows : q_rows + 2 * kv_width;
    place_gated_q(places, config, tensor(names.q), n_rows, shape.head_dim, layer);
  } else {
    places.matrix(tensor(names.q), q_width, hidden, layer.q, rotated);
  }
  if (has_kv) places.matrix(tensor(names.k), kv_width, hidden, layer.k, rotated);
  if (has_v) places.matrix(tensor(names.v), kv_width, hidden, layer.v);
  if (!fused.empty()) config.output_gate ? places.stack_last(2, q_rows) : places.stack_last(3);
  if (config.qkv_bias) place_qkv_biases(places, config, names, i, layer);
  if (config.attention_sinks) places.values(names.in_layer(i, names.sinks), config.n_heads, layer.sinks);
  if (config.qk_norm != QkNorm::none) place_qk_norms(places, config, names, i, layer);
}

// q, k, v and the gate of linear attention: two tensors, or one that has them of each key head and its value heads.
void place_linear_qkv(Places& places, const ModelConfig& config, const TensorNames& names, int i, LayerWeights& layer) {
  const DeltaRule& rule = config.delta;
  const std::int64_t hidden = config.hidden_size;
  const bool by_key_head = !names.linear.qkv_gate.empty();
  const std::string qkv = names.weight(i, by_key_head ? names.linear.qkv_gate : names.linear.qkv);
  const std::string gate = names.weight(i, by_key_head ? names.linear.qkv_gate : names.linear.gate);
  const std::int64_t values_of_key = rule.value_width() / rule.n_key_heads;
  const std::int64_t stride = 2 * rule.key_dim + 2 * values_of_key;
  std::int64_t first_row = 0;
  const auto place = [&](const std::string& tensor, std::int64_t n, std::int64_t of_key_head, Matrix& slot) {
    places.matrix(tensor, n, hidden, slot);
    if (by_key_head) places.group_last(first_row, stride * rule.n_key_heads, {.size = of_key_head, .stride = stride});
    first_row += of_key_head;
  };
  place(qkv, rule.key_width(), rule.key_dim, layer.q);
  place(qkv, rule.key_width(), rule.key_dim, layer.k);
  place(qkv, rule.value_width(), values_of_key, layer.v);
  if (!by_key_head) places.stack_last(3);
  place(gate, rule.value_width(), values_of_key, layer.output_gate);
}

void place_alpha_and_beta(Places& places, const ModelConfig& config, const TensorNames& names, int i,
                          LayerWeights& layer) {
  const DeltaRule& rule = config.delta;
  const std::string_view both = names.linear.alpha_beta;
  places.matrix(names.weight(i, both.empty() ? names.linear.beta : both), rule.n_value_heads, config.hidden_size,
                layer.beta);
  const std::int64_t of_key = rule.n_value_heads / rule.n_key_heads;
  const RowGroups groups = {.size = of_key, .stride = 2 * of_key};
  if (!both.empty()) places.group_last(0, 2 * std::int64_t{rule.n_value_heads}, groups);
  places.matrix(names.weight(i, both.empty() ? names.linear.alpha : both), rule.n_value_heads, config.hidden_size,
                layer.alpha);
  if (!both.empty()) places.group_last(of_key, 2 * std::int64_t{rule.n_value_heads}, groups);
}

void place_linear_attention(Places& places, const ModelConfig& config, const TensorNames& names, int i,
                            LayerWeights& layer) {
  const DeltaRule& rule = config.delta;
  const LinearAttentionNames& linear = names.linear;
  place_linear_qkv(places, config, names, i, layer);
  place_alpha_and_beta(places, config, names, i, layer);
  places.values(names.weight(i, linear.conv), rule.width(), layer.conv).k = config.conv_taps;
  places.values(names.in_layer(i, linear.decay_rates), rule.n_value_heads, layer.decay_rates).map =
      linear.decay_rates_are_logarithms ? ValueMap::negative_exp : ValueMap::none;
  places.values(names.in_layer(i, linear.dt_bias), rule.n_value_heads, layer.dt_bias);
  places.values(names.weight(i, linear.norm), rule.value_dim, layer.linear_norm);
  places.matrix(names.weight(i, linear.output), config.hidden_size, rule.value_width(), layer.output);
}

void add_attention(Places& places, const ModelConfig& config, const TensorNames& names, int i, LayerWeights& layer) {
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t q_width = std::int64_t{config.n_heads} * config.layers[static_cast<std::size_t>(i)].head_dim;
  if (config.norm_placement != NormPlacement::post) places.stream_norm(i, names.attention_norm, layer.attention_norm);
  if (config.layers[static_cast<std::size_t>(i)].state != kNoState) {
    return place_linear_attention(places, config, names, i, layer);
  }
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
  if (names.experts.empty()) return places.experts(names.stack(i, name), n, k, n_experts, slot);
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

void place_expert_biases(Places& places, const ModelConfig& config, const TensorNames& names, int i,
                         LayerWeights& layer) {
  const int n_experts = config.experts.n_experts;
  const bool has_optional =
      !names.optional_expert_gate_up.empty() && places.has(names.stack_bias(i, names.optional_expert_gate_up));
  const std::string_view fused = has_optional ? names.optional_expert_gate_up : names.expert_gate_up;
  const auto tensor = [&](std::string_view name) { return names.stack_bias(i, fused.empty() ? name : fused); };
  places.bias(names.bias(i, names.router), n_experts, layer.router_bias);
  places.biases(tensor(names.expert_gate), config.expert_ffn_size, n_experts, layer.expert_gate_biases);
  places.biases(tensor(names.expert_up), config.expert_ffn_size, n_experts, layer.expert_up_biases);
  if (!fused.empty()) places.join_gate_and_up();
  places.biases(names.stack_bias(i, names.expert_down), config.hidden_size, n_experts, layer.expert_down_biases);
}

void place_experts(Places& places, const ModelConfig& config, const TensorNames& names, int i, LayerWeights& layer) {
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t ffn = config.expert_ffn_size;
  const bool has_optional =
      !names.optional_expert_gate_up.empty() && places.has(names.stack(i, names.optional_expert_gate_up));
  const std::string_view fused = has_optional ? names.optional_expert_gate_up : names.expert_gate_up;
  places.matrix(names.weight(i, names.router), config.experts.n_experts, hidden, layer.router);
  add_expert_matrices(places, config, names, i, fused.empty() ? names.expert_gate : fused, ffn, hidden,
                      layer.expert_gates);
  add_expert_matrices(places, config, names, i, fused.empty() ? names.expert_up : fused, ffn, hidden, layer.expert_ups);
  if (!fused.empty()) places.join_gate_and_up();
  add_expert_matrices(places, config, names, i, names.expert_down, hidden, ffn, layer.expert_downs);
  if (config.has_expert_scales) {
    places.values(names.in_layer(i, names.expert_scales), config.experts.n_experts, layer.expert_scales);
  }
  if (config.expert_bias) place_expert_biases(places, config, names, i, layer);
  if (config.shared_ffn_size > 0) place_shared_expert(places, config, names, i, layer);
}

void place_gate_and_up(Places& places, const ModelConfig& config, const TensorNames& names, int i,
                       LayerWeights& layer) {
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t ffn = config.layers[static_cast<std::size_t>(i)].ffn_size;
  if (config.plain_activation) return places.matrix(names.weight(i, names.up), ffn, hidden, layer.up);
  const bool fused = !names.gate_up.empty();
  places.matrix(names.weight(i, fused ? names.gate_up : names.gate), ffn, hidden, layer.gate);
  places.matrix(names.weight(i, fused ? names.gate_up : names.up), ffn, hidden, layer.up);
  if (fused) places.stack_last(2);
}

void place_dense(Places& places, const ModelConfig& config, const TensorNames& names, int i, LayerWeights& layer) {
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t ffn = config.layers[static_cast<std::size_t>(i)].ffn_size;
  place_gate_and_up(places, config, names, i, layer);
  places.matrix(names.weight(i, names.down), hidden, ffn, layer.down);
  if (!config.ffn_bias) return;
  if (!config.plain_activation) places.bias(names.bias(i, names.gate), ffn, layer.gate_bias);
  places.bias(names.bias(i, names.up), ffn, layer.up_bias);
  places.bias(names.bias(i, names.down), hidden, layer.down_bias);
}

// The router multiplies its norm by hidden^(-1/2), which the weights of that norm hold.
void place_dense_beside_experts(Places& places, const ModelConfig& config, const TensorNames& names, int i,
                                LayerWeights& layer) {
  place_dense(places, config, names, i, layer);
  places.stream_norm(i, names.post_dense_norm, layer.post_dense_norm);
  const float factor = 1 / std::sqrt(static_cast<float>(config.hidden_size));
  places.values(names.in_layer(i, names.router_norm), config.hidden_size, layer.router_norm.weight).factor = factor;
  places.stream_norm(i, names.expert_norm, layer.expert_norm);
  places.stream_norm(i, names.post_expert_norm, layer.post_expert_norm);
}

void place_layer_embedding(Places& places, const ModelConfig& config, const TensorNames& names, int i,
                           LayerWeights& layer) {
  const std::int64_t hidden = config.hidden_size, size = config.layer_embedding.size;
  places.matrix(names.weight(i, names.embedding_gate), size, hidden, layer.embedding_gate);
  places.matrix(names.weight(i, names.embedding_output), hidden, size, layer.embedding_output);
  places.stream_norm(i, names.post_embedding_norm, layer.post_embedding_norm);
}

void place_layer_table(Places& places, const ModelConfig& config, const TensorNames& names, Weights& weights) {
  const std::int64_t size = config.layer_embedding.size, of_all = config.n_layers * size;
  places.table(std::string(names.layer_table), config.vocab_size, of_all, weights.layer_table);
  places.matrix(std::string(names.layer_projection), of_all, config.hidden_size, weights.layer_projection);
  places.values(std::string(names.layer_projection_norm), size, weights.layer_projection_norm).factor =
      config.layer_embedding.projection_scale;
}

void place_feed_forward(Places& places, const ModelConfig& config, const TensorNames& names, int i,
                        LayerWeights& layer) {
  const bool has_norm = config.norm_placement != NormPlacement::post && !config.parallel_blocks;
  if (has_norm) places.stream_norm(i, names.ffn_norm, layer.ffn_norm);
  const bool has_experts = config.layers[static_cast<std::size_t>(i)].has_experts;
  if (has_experts && config.dense_beside_experts) place_dense_beside_experts(places, config, names, i, layer);
  (has_experts ? place_experts : place_dense)(places, config, names, i, layer);
  if (config.norm_placement != NormPlacement::pre) places.stream_norm(i, names.post_ffn_norm, layer.post_ffn_norm);
}

void place_layer(Places& places, const ModelConfig& config, const TensorNames& names, int i, LayerWeights& layer) {
  add_attention(places, config, names, i, layer);
  place_feed_forward(places, config, names, i, layer);
  if (config.layer_embedding.size > 0) place_layer_embedding(places, config, names, i, layer);
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

std::vector<std::string> spare_tensors(const ModelConfig& config, const TensorNames& names) {
  std::vector<std::string> spare;
  for (int i = 0; i < config.n_layers; ++i) {
    if (!config.layers[static_cast<std::size_t>(i)].shares_kv) continue;
    for (const std::string_view name : {names.k, names.v, names.k_norm}) spare.push_back(names.weight(i, name));
  }
  return spare;
}

std::vector<WeightPlace> layer_places(const ModelFile& file, const ModelConfig& config, const TensorNames& names, int i,
                                      LayerWeights& layer) {
  Places places(file, config, names);
  place_layer(places, config, names, i, layer);
  return std::move(places).take();
}

std::vector<WeightPlace> weight_places(const ModelFile& file, const ModelConfig& config, const TensorNames& names,
                                       Weights& weights) {
  Places places(file, config, names);
  weights.layers.resize(static_cast<std::size_t>(config.n_layers));
  const std::string embedding(names.embedding);
  if (config.tied_head) {
    places.head(embedding, config.vocab_size, config.hidden_size, weights.embedding);
  } else {
    places.table(embedding, config.vocab_size, config.hidden_size, weights.embedding);
  }
  if (config.layer_embedding.size > 0) place_layer_table(places, config, names, weights);
  for (int i = 0; i < config.n_layers; ++i) {
    place_layer(places, config, names, i, weights.layers[static_cast<std::size_t>(i)]);
  }
  places.final_norm(weights.final_norm);
  if (!config.tied_head) {
    places.head(std::string(names.head), config.vocab_size, config.hidden_size, weights.head);
  }
  return std::move(places).take();
}

}  // namespace imp
