// Lists the tensors of a layer's attention: softmax attention or linear attention.
#include "model/weights/layer_specs.h"

namespace imp {

// The reordering of q's and k's rows that gives the order of the configured RoPE.
RowOrder LayerSpecs::rotated_order() const {
  if (names_.rope_quarters_apart) return RowOrder::quarters_swapped;
  const bool side_by_side = !config_.ropes.empty() && config_.ropes.front().style == RopeStyle::adjacent;
  return side_by_side && names_.rope_halves_apart ? RowOrder::pairs_apart : RowOrder::file;
}

// One tensor of so many rows that begins with those of q and of the gate, head by head.
void LayerSpecs::add_gated_q(const std::string& tensor, std::int64_t n_rows) {
  const std::int64_t width = std::int64_t{config_.n_heads} * shape_.head_dim;
  const RowGroups groups = {.size = shape_.head_dim, .stride = 2 * std::int64_t{shape_.head_dim}};
  specs_.matrix(tensor, width, config_.hidden_size, layer_.q);
  specs_.group_last(0, n_rows, groups);
  specs_.matrix(tensor, width, config_.hidden_size, layer_.output_gate);
  specs_.group_last(shape_.head_dim, n_rows, groups);
}

// The name of the tensor with q, k and v, or with their biases; empty: each has its own.
std::string_view LayerSpecs::fused_qkv(bool of_biases) const {
  const std::string_view name = names_.optional_qkv;
  const bool has_all = !shape_.shares_kv && !shape_.values_are_keys;
  if (!has_all || name.empty()) return names_.qkv;
  return specs_.has(of_biases ? names_.bias(i_, name) : names_.weight(i_, name)) ? name : names_.qkv;
}

void LayerSpecs::add_qkv_biases() {
  const std::int64_t q_width = std::int64_t{config_.n_heads} * shape_.head_dim;
  const std::int64_t kv_width = std::int64_t{shape_.n_kv_heads} * shape_.head_dim;
  const bool has_kv = !shape_.shares_kv, has_v = has_kv && !shape_.values_are_keys;
  const RowOrder rotated = rotated_order();
  const std::string_view fused = fused_qkv(true);
  const auto tensor = [&](std::string_view name) { return names_.bias(i_, fused.empty() ? name : fused); };
  specs_.bias(tensor(names_.q), q_width, layer_.q_bias, rotated);
  if (has_kv) specs_.bias(tensor(names_.k), kv_width, layer_.k_bias, rotated);
  if (has_v) specs_.bias(tensor(names_.v), kv_width, layer_.v_bias);
  if (!fused.empty()) specs_.stack_last(3);
}

// The weights of the norms of q and k.
void LayerSpecs::add_qk_norms() {
  const std::string q = names_.weight(i_, names_.q_norm), k = names_.weight(i_, names_.k_norm);
  if (config_.qk_norm == QkNorm::layer) {
    specs_.head_norms(q, shape_.head_dim, config_.n_heads, layer_.q_norm);
    if (!shape_.shares_kv) specs_.head_norms(k, shape_.head_dim, shape_.n_kv_heads, layer_.k_norm);
    return;
  }
  const bool wide = config_.qk_norm == QkNorm::width;
  const RowOrder rotated = rotated_order();
  specs_.norm(q, std::int64_t{wide ? config_.n_heads : 1} * shape_.head_dim, layer_.q_norm, rotated);
  if (shape_.shares_kv) return;
  specs_.norm(k, std::int64_t{wide ? shape_.n_kv_heads : 1} * shape_.head_dim, layer_.k_norm, rotated);
}

void LayerSpecs::add_qkv() {
  const std::int64_t hidden = config_.hidden_size;
  const std::int64_t q_width = std::int64_t{config_.n_heads} * shape_.head_dim;
  const std::int64_t kv_width = std::int64_t{shape_.n_kv_heads} * shape_.head_dim;
  const bool has_kv = !shape_.shares_kv, has_v = has_kv && !shape_.values_are_keys;
  const RowOrder rotated = rotated_order();
  const std::string_view fused = fused_qkv(false);
  const auto tensor = [&](std::string_view name) { return names_.weight(i_, fused.empty() ? name : fused); };
  const std::int64_t q_rows = config_.output_gate ? 2 * q_width : q_width;
  if (config_.output_gate) {
    const std::int64_t n_rows = fused.empty() ? q_rows : q_rows + 2 * kv_width;
    add_gated_q(tensor(names_.q), n_rows);
  } else {
    specs_.matrix(tensor(names_.q), q_width, hidden, layer_.q, rotated);
  }
  if (has_kv) specs_.matrix(tensor(names_.k), kv_width, hidden, layer_.k, rotated);
  if (has_v) specs_.matrix(tensor(names_.v), kv_width, hidden, layer_.v);
  if (!fused.empty()) config_.output_gate ? specs_.stack_last(2, q_rows) : specs_.stack_last(3);
  if (config_.qkv_bias) add_qkv_biases();
  if (config_.attention_sinks) specs_.values(names_.in_layer(i_, names_.sinks), config_.n_heads, layer_.sinks);
  if (config_.qk_norm != QkNorm::none) add_qk_norms();
}

// q, k, v and the gate of linear attention: two tensors, or one that has them of each key head and its value heads.
void LayerSpecs::add_linear_qkv() {
  const DeltaRule& rule = config_.delta;
  const std::int64_t hidden = config_.hidden_size;
  const bool by_key_head = !names_.linear.qkv_gate.empty();
  const std::string qkv = names_.weight(i_, by_key_head ? names_.linear.qkv_gate : names_.linear.qkv);
  const std::string gate = names_.weight(i_, by_key_head ? names_.linear.qkv_gate : names_.linear.gate);
  const std::int64_t values_of_key = rule.value_width() / rule.n_key_heads;
  const std::int64_t stride = 2 * rule.key_dim + 2 * values_of_key;
  std::int64_t first_row = 0;
  const auto spec = [&](const std::string& tensor, std::int64_t n, std::int64_t of_key_head, Matrix& slot) {
    specs_.matrix(tensor, n, hidden, slot);
    if (by_key_head) specs_.group_last(first_row, stride * rule.n_key_heads, {.size = of_key_head, .stride = stride});
    first_row += of_key_head;
  };
  spec(qkv, rule.key_width(), rule.key_dim, layer_.q);
  spec(qkv, rule.key_width(), rule.key_dim, layer_.k);
  spec(qkv, rule.value_width(), values_of_key, layer_.v);
  if (!by_key_head) specs_.stack_last(3);
  spec(gate, rule.value_width(), values_of_key, layer_.output_gate);
}

void LayerSpecs::add_alpha_and_beta() {
  const DeltaRule& rule = config_.delta;
  const std::string_view both = names_.linear.alpha_beta;
  specs_.matrix(names_.weight(i_, both.empty() ? names_.linear.beta : both), rule.n_value_heads, config_.hidden_size,
                layer_.beta);
  const std::int64_t of_key = rule.n_value_heads / rule.n_key_heads;
  const RowGroups groups = {.size = of_key, .stride = 2 * of_key};
  if (!both.empty()) specs_.group_last(0, 2 * std::int64_t{rule.n_value_heads}, groups);
  specs_.matrix(names_.weight(i_, both.empty() ? names_.linear.alpha : both), rule.n_value_heads, config_.hidden_size,
                layer_.alpha);
  if (!both.empty()) specs_.group_last(of_key, 2 * std::int64_t{rule.n_value_heads}, groups);
}

void LayerSpecs::add_linear_attention() {
  const DeltaRule& rule = config_.delta;
  const LinearAttentionNames& linear = names_.linear;
  add_linear_qkv();
  add_alpha_and_beta();
  specs_.values(names_.weight(i_, linear.conv), rule.width(), layer_.conv).k = config_.conv_taps;
  specs_.values(names_.in_layer(i_, linear.decay_rates), rule.n_value_heads, layer_.decay_rates).map =
      linear.decay_rates_are_logarithms ? ValueMap::negative_exp : ValueMap::none;
  specs_.values(names_.in_layer(i_, linear.dt_bias), rule.n_value_heads, layer_.dt_bias);
  specs_.values(names_.weight(i_, linear.norm), rule.value_dim, layer_.linear_norm);
  specs_.matrix(names_.weight(i_, linear.output), config_.hidden_size, rule.value_width(), layer_.output);
}

void LayerSpecs::add_attention() {
  const std::int64_t hidden = config_.hidden_size;
  const std::int64_t q_width = std::int64_t{config_.n_heads} * shape_.head_dim;
  if (config_.norms_inputs() && shape_.has_attention_norm)
    specs_.stream_norm(i_, names_.attention_norm, layer_.attention_norm);
  if (shape_.state != kNoState) {
    return add_linear_attention();
  }
  add_qkv();
  specs_.matrix(names_.weight(i_, names_.output), hidden, q_width, layer_.output);
  if (config_.output_bias) specs_.bias(names_.bias(i_, names_.output), hidden, layer_.output_bias);
  if (config_.norm_placement != NormPlacement::pre)
    specs_.stream_norm(i_, names_.post_attention_norm, layer_.post_attention_norm);
}

}  // namespace imp
