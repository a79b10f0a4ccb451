// The memory of a decoder's activations, and what it needs from its backend.
#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>

#include "model/decoder.h"
#include "model/row_views.h"

namespace imp {

AttentionParams attention_params(const ModelConfig& config, const LayerConfig& layer) {
  return {.n_heads = config.n_heads,
          .n_kv_heads = layer.n_kv_heads,
          .head_dim = layer.head_dim,
          .scale = config.attention_scale,
          .soft_cap = config.attention_soft_cap,
          .window = layer.window};
}

void Decoder::make_workspace() {
  const int rows = limits_.max_rows;
  const int q_width = config_.n_heads * config_.max_of(&LayerConfig::head_dim);
  const int kv_width = config_.widest_kv();
  x_ = backend_.make_rows(rows, config_.hidden_size);
  normed_ = backend_.make_rows(rows, config_.hidden_size);
  q_ = backend_.make_rows(rows, q_width);
  k_ = backend_.make_rows(rows, kv_width);
  v_ = backend_.make_rows(rows, kv_width);
  attended_ = backend_.make_rows(rows, q_width);
  if (config_.output_gate) output_gate_ = backend_.make_rows(rows, q_width);
  if (config_.n_state_layers() > 0) {
    const DeltaRule& rule = config_.delta;
    for (Rows* each : {&mixed_, &convolved_}) *each = backend_.make_rows(rows, rule.width());
    for (Rows* each : {&alpha_, &beta_}) *each = backend_.make_rows(rows, rule.n_value_heads);
    for (Rows* each : {&linear_gate_, &read_}) *each = backend_.make_rows(rows, rule.value_width());
  }
  if (const int size = config_.layer_embedding.size; size > 0) {
    layer_inputs_ = backend_.make_rows(rows, config_.n_layers * size);
    projected_ = backend_.make_rows(rows, config_.n_layers * size);
    embedding_gate_ = backend_.make_rows(rows, size);
  }
  branch_ = backend_.make_rows(rows, config_.hidden_size);
  last_ = backend_.make_rows(limits_.max_logits_rows, config_.hidden_size);
  logits_ = backend_.make_rows(limits_.max_logits_rows, config_.vocab_size);
  for (const Rope& rope : ropes_) angles_.push_back(backend_.make_rows(rows, rope.dims));
  if (!kept_.are_kept) return;
  hidden_ = backend_.make_rows(rows, config_.hidden_size * std::max(1, static_cast<int>(kept_.taps.size())));
  every_row_.resize(static_cast<std::size_t>(rows));
  std::iota(every_row_.begin(), every_row_.end(), 0);
}

namespace {

// The ops in use that a backend may lack.
std::vector<Op> special_ops(const ModelConfig& config, const ForwardLimits& limits) {
  std::vector<Op> ops;
  const auto add = [&](bool is_used, Op op) {
    if (is_used) ops.push_back(op);
  };
  const auto is_scaled = [](const LayerConfig& layer) { return layer.output_scale != 1; };
  add(config.value_norm || config.layer_embedding.size > 0, Op::norm_heads);
  add(config.has_expert_scales, Op::scale_experts);
  add(config.residual_scale != 1 || config.logit_scale != 1 || std::ranges::any_of(config.layers, is_scaled),
      Op::scale);
  add(config.norm_kind == NormKind::layer || config.qk_norm == QkNorm::layer, Op::layer_norm);
  add(config.plain_activation.has_value(), Op::activate);
  add(config.query_scale.growth != 0, Op::scale_by_position);
  add(config.attention_sinks, Op::attend_sinks);
  add(limits.is_watched, Op::attention_mass);
  add(config.expert_bias, Op::expert_biases);
  add(config.clamped_silu.has_value(), Op::clamped_activation);
  const bool is_linear = config.n_state_layers() > 0;
  for (const Op op : {Op::delta_rule, Op::short_conv, Op::rms_norm_gated}) add(is_linear, op);
  add(config.output_gate, Op::multiply_sigmoid);
  return ops;
}

// The greatest of each size, over all layers.
AttentionParams widest_attention(const ModelConfig& config) {
  AttentionParams widest = attention_params(config, config.layers.front());
  widest.n_kv_heads = config.max_of(&LayerConfig::n_kv_heads);
  widest.head_dim = config.max_of(&LayerConfig::head_dim);
  return widest;
}

}  // namespace

WorkspaceNeeds workspace_needs(const ModelConfig& config, const ForwardLimits& limits) {
  return {.max_rows = limits.max_rows,
          .max_logits_rows = limits.max_logits_rows,
          .max_sequences = std::min(limits.max_rows, limits.max_logits_rows),
          .vocab_size = config.vocab_size,
          .max_context = config.max_context,
          .ops = special_ops(config, limits),
          .attention = widest_attention(config),
          .weights = {},
          .experts = config.experts};
}

std::uint64_t activation_bytes(const ModelConfig& config, const ForwardLimits& limits) {
  const std::int64_t rows = limits.max_rows;
  const std::int64_t q_width = std::int64_t{config.n_heads} * config.max_of(&LayerConfig::head_dim);
  const std::int64_t kv_width = config.widest_kv();
  std::uint64_t total = 3 * bytes_of_rows(rows, config.hidden_size) + 2 * bytes_of_rows(rows, q_width) +
                        2 * bytes_of_rows(rows, kv_width) + bytes_of_rows(limits.max_logits_rows, config.hidden_size);
  if (config.output_gate) total += bytes_of_rows(rows, q_width);
  if (config.n_state_layers() > 0) {
    total += 2 * bytes_of_rows(rows, config.delta.width()) + 2 * bytes_of_rows(rows, config.delta.n_value_heads) +
             2 * bytes_of_rows(rows, config.delta.value_width());
  }
  total += feed_forward_bytes(config, limits.max_rows);
  if (const std::int64_t size = config.layer_embedding.size; size > 0) {
    total += 2 * bytes_of_rows(rows, config.n_layers * size) + bytes_of_rows(rows, size);
  }
  for (const RopeConfig& rope : config.ropes) total += bytes_of_rows(rows, rope.dims);
  return total;
}

}  // namespace imp
