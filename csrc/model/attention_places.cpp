// Lists the tensors of a layer's attention: softmax attention or linear attention.
#include "model/layer_places.h"

namespace imp {

// The reordering of q's and k's rows that gives the order of the configured RoPE.
RowOrder LayerPlaces::rotated_order() const {
  const bool side_by_side = config_.ropes.front().style == RopeStyle::adjacent;
  return side_by_side && names_.rope_halves_apart ? RowOrder::pairs_apart : RowOrder::file;
}

// One tensor of so many rows that begins with those of q and of the gate, head by head.
void LayerPlaces::place_gated_q(const std::string& tensor, std::int64_t n_rows) {
  const std::int64_t width = std::int64_t{config_.n_heads} * shape_.head_dim;
  const RowGroups groups = {.size = shape_.head_dim, .stride = 2 * std::int64_t{shape_.head_dim}};
  places_.matrix(tensor, width, config_.hidden_size, layer_.q);
  places_.group_last(0, n_rows, groups);
  places_.matrix(tensor, width, config_.hidden_size, layer_.output_gate);
  places_.group_last(shape_.head_dim, n_rows, groups);
}

void LayerPlaces::place_qkv_biases() {
  const std::int64_t q_width = std::int64_t{config_.n_heads} * shape_.head_dim;
  const std::int64_t kv_width = std::int64_t{shape_.n_kv_heads} * shape_.head_dim;
  const bool has_kv = !shape_.shares_kv, has_v = has_kv && !shape_.values_are_keys;
  const RowOrder rotated = rotated_order();
  const bool fused = has_v && !names_.optional_qkv.empty() && places_.has(names_.bias(i_, names_.optional_qkv));
  const auto tensor = [&](std::string_view name) { return names_.bias(i_, fused ? names_.optional_qkv : name); };
  places_.bias(tensor(names_.q), q_width, layer_.q_bias, rotated);
  if (has_kv) places_.bias(tensor(names_.k), kv_width, layer_.k_bias, rotated);
  if (has_v) places_.bias(tensor(names_.v), kv_width, layer_.v_bias);
  if (fused) places_.stack_last(3);
}

// The weights of the norms of q and k.
void LayerPlaces::place_qk_norms() {
  const std::string q = names_.weight(i_, names_.q_norm), k = names_.weight(i_, names_.k_norm);
  if (config_.qk_norm == QkNorm::layer) {
    places_.head_norms(q, shape_.head_dim, config_.n_heads, layer_.q_norm);
    if (!shape_.shares_kv) places_.head_norms(k, shape_.head_dim, shape_.n_kv_heads, layer_.k_norm);
    return;
  }
  const bool wide = config_.qk_norm == QkNorm::width;
  places_.norm(q, std::int64_t{wide ? config_.n_heads : 1} * shape_.head_dim, layer_.q_norm);
  if (!shape_.shares_kv) places_.norm(k, std::int64_t{wide ? shape_.n_kv_heads : 1} * shape_.head_dim, layer_.k_norm);
}

void LayerPlaces::place_qkv() {
  const std::int64_t hidden = config_.hidden_size;
  const std::int64_t q_width = std::int64_t{config_.n_heads} * shape_.head_dim;
  const std::int64_t kv_width = std::int64_t{shape_.n_kv_heads} * shape_.head_dim;
  const bool has_kv = !shape_.shares_kv, has_v = has_kv && !shape_.values_are_keys;
  const RowOrder rotated = rotated_order();
  const bool has_optional =
      has_v && !names_.optional_qkv.empty() && places_.has(names_.weight(i_, names_.optional_qkv));
  const std::string_view fused = has_optional ? names_.optional_qkv : names_.qkv;
  const auto tensor = [&](std::string_view name) { return names_.weight(i_, fused.empty() ? name : fused); };
  const std::int64_t q_rows = config_.output_gate ? 2 * q_width : q_width;
  if (config_.output_gate) {
    const std::int64_t n_rows = fused.empty() ? q_rows : q_rows + 2 * kv_width;
    place_gated_q(tensor(names_.q), n_rows);
  } else {
    places_.matrix(tensor(names_.q), q_width, hidden, layer_.q, rotated);
  }
  if (has_kv) places_.matrix(tensor(names_.k), kv_width, hidden, layer_.k, rotated);
  if (has_v) places_.matrix(tensor(names_.v), kv_width, hidden, layer_.v);
  if (!fused.empty()) config_.output_gate ? places_.stack_last(2, q_rows) : places_.stack_last(3);
  if (config_.qkv_bias) place_qkv_biases();
  if (config_.attention_sinks) places_.values(names_.in_layer(i_, names_.sinks), config_.n_heads, layer_.sinks);
  if (config_.qk_norm != QkNorm::none) place_qk_norms();
}

// q, k, v and the gate of linear attention: two tensors, or one that has them of each key head and its value heads.
void LayerPlaces::place_linear_qkv() {
  const DeltaRule& rule = config_.delta;
  const std::int64_t hidden = config_.hidden_size;
  const bool by_key_head = !names_.linear.qkv_gate.empty();
  const std::string qkv = names_.weight(i_, by_key_head ? names_.linear.qkv_gate : names_.linear.qkv);
  const std::string gate = names_.weight(i_, by_key_head ? names_.linear.qkv_gate : names_.linear.gate);
  const std::int64_t values_of_key = rule.value_width() / rule.n_key_heads;
  const std::int64_t stride = 2 * rule.key_dim + 2 * values_of_key;
  std::int64_t first_row = 0;
  const auto place = [&](const std::string& tensor, std::int64_t n, std::int64_t of_key_head, Matrix& slot) {
    places_.matrix(tensor, n, hidden, slot);
    if (by_key_head) places_.group_last(first_row, stride * rule.n_key_heads, {.size = of_key_head, .stride = stride});
    first_row += of_key_head;
  };
  place(qkv, rule.key_width(), rule.key_dim, layer_.q);
  place(qkv, rule.key_width(), rule.key_dim, layer_.k);
  place(qkv, rule.value_width(), values_of_key, layer_.v);
  if (!by_key_head) places_.stack_last(3);
  place(gate, rule.value_width(), values_of_key, layer_.output_gate);
}

void LayerPlaces::place_alpha_and_beta() {
  const DeltaRule& rule = config_.delta;
  const std::string_view both = names_.linear.alpha_beta;
  places_.matrix(names_.weight(i_, both.empty() ? names_.linear.beta : both), rule.n_value_heads, config_.hidden_size,
                 layer_.beta);
  const std::int64_t of_key = rule.n_value_heads / rule.n_key_heads;
  const RowGroups groups = {.size = of_key, .stride = 2 * of_key};
  if (!both.empty()) places_.group_last(0, 2 * std::int64_t{rule.n_value_heads}, groups);
  places_.matrix(names_.weight(i_, both.empty() ? names_.linear.alpha : both), rule.n_value_heads, config_.hidden_size,
                 layer_.alpha);
  if (!both.empty()) places_.group_last(of_key, 2 * std::int64_t{rule.n_value_heads}, groups);
}

void LayerPlaces::place_linear_attention() {
  const DeltaRule& rule = config_.delta;
  const LinearAttentionNames& linear = names_.linear;
  place_linear_qkv();
  place_alpha_and_beta();
  places_.values(names_.weight(i_, linear.conv), rule.width(), layer_.conv).k = config_.conv_taps;
  places_.values(names_.in_layer(i_, linear.decay_rates), rule.n_value_heads, layer_.decay_rates).map =
      linear.decay_rates_are_logarithms ? ValueMap::negative_exp : ValueMap::none;
  places_.values(names_.in_layer(i_, linear.dt_bias), rule.n_value_heads, layer_.dt_bias);
  places_.values(names_.weight(i_, linear.norm), rule.value_dim, layer_.linear_norm);
  places_.matrix(names_.weight(i_, linear.output), config_.hidden_size, rule.value_width(), layer_.output);
}

void LayerPlaces::add_attention() {
  const std::int64_t hidden = config_.hidden_size;
  const std::int64_t q_width = std::int64_t{config_.n_heads} * shape_.head_dim;
  if (config_.norm_placement != NormPlacement::post)
    places_.stream_norm(i_, names_.attention_norm, layer_.attention_norm);
  if (shape_.state != kNoState) {
    return place_linear_attention();
  }
  place_qkv();
  places_.matrix(names_.weight(i_, names_.output), hidden, q_width, layer_.output);
  if (config_.output_bias) places_.bias(names_.bias(i_, names_.output), hidden, layer_.output_bias);
  if (config_.norm_placement != NormPlacement::pre)
    places_.stream_norm(i_, names_.post_attention_norm, layer_.post_attention_norm);
}

}  // namespace imp
