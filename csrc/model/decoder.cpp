// The forward pass of a transformer decoder.
#include "model/decoder.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#include "base/ceil_div.h"
#include "base/error.h"

namespace imp {
namespace {

// Of layers without RoPE.
const Rope kUnrotated;

Rows first(Rows rows, std::size_t n) {
  rows.n_rows = static_cast<int>(n);
  return rows;
}

Rows columns(Rows rows, int first, int width) {
  rows.data += first;
  rows.width = width;
  return rows;
}

AttentionParams attention_params(const ModelConfig& config, const LayerConfig& layer) {
  return {.n_heads = config.n_heads,
          .n_kv_heads = layer.n_kv_heads,
          .head_dim = layer.head_dim,
          .scale = config.attention_scale,
          .soft_cap = config.attention_soft_cap,
          .window = layer.window};
}

void add_matrices(const Weights& weights, WorkspaceNeeds& needs) {
  const auto add = [&](const Matrix& weight) {
    if (weight) needs.weights.push_back(weight.get());
  };
  for (const Matrix* weight : {&weights.embedding, &weights.layer_table, &weights.layer_projection}) add(*weight);
  for (const LayerWeights& w : weights.layers) {
    for (const Matrix* weight :
         {&w.q, &w.k, &w.v, &w.output_gate, &w.steps, &w.strengths, &w.output, &w.gate, &w.up, &w.down, &w.router,
          &w.shared_router, &w.shared_gate, &w.shared_up, &w.shared_down, &w.embedding_gate, &w.embedding_output}) {
      add(*weight);
    }
    for (const Stack* stack : {&w.expert_gates, &w.expert_ups, &w.expert_downs}) {
      for (const Matrix& weight : *stack) needs.expert_weights.push_back(weight.get());
    }
  }
  add(weights.head);
}

// Rows that all experts together process for so many rows of a batch.
int grouped_rows(const ModelConfig& config, int rows) {
  return rows * config.experts.n_used;
}

}  // namespace

Decoder::Decoder(const Model& model, Backend& backend, const ForwardLimits& limits)
    : config_(model.config()),
      weights_(model.weights()),
      ropes_(model.ropes()),
      backend_(backend),
      limits_(limits),
      kv_block_tokens_(model.kv_block_tokens()) {
  IMP_CHECK(limits.max_rows > 0 && limits.max_logits_rows > 0);
  make_workspace();
  WorkspaceNeeds needs = workspace_needs(config_, limits_);
  add_matrices(weights_, needs);
  backend_.reserve(needs);
}

void Decoder::make_workspace() {
  const int rows = limits_.max_rows;
  const int q_width = config_.n_heads * config_.most(&LayerConfig::head_dim);
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
    for (Rows* each : {&steps_, &strengths_}) *each = backend_.make_rows(rows, rule.n_value_heads);
    for (Rows* each : {&linear_gate_, &read_}) *each = backend_.make_rows(rows, rule.value_width());
  }
  if (config_.has_dense_layers()) gate_ = backend_.make_rows(rows, config_.most(&LayerConfig::ffn_size));
  if (config_.has_experts()) {
    const int grouped = grouped_rows(config_, rows);
    expert_gate_ = backend_.make_rows(grouped, config_.expert_ffn_size);
    expert_up_ = backend_.make_rows(grouped, config_.expert_ffn_size);
    scores_ = backend_.make_rows(rows, config_.experts.n_experts);
    routed_ = backend_.make_expert_rows(rows, config_.experts);
    grouped_ = backend_.make_rows(grouped, config_.hidden_size);
  }
  if (config_.shared_ffn_size > 0) {
    if (config_.shared_is_gated) shared_score_ = backend_.make_rows(rows, 1);
    shared_gate_ = backend_.make_rows(rows, config_.shared_ffn_size);
    shared_ = backend_.make_rows(rows, config_.hidden_size);
  }
  if (config_.dense_beside_experts) expert_branch_ = backend_.make_rows(rows, config_.hidden_size);
  if (const int size = config_.layer_embedding.size; size > 0) {
    layer_inputs_ = backend_.make_rows(rows, config_.n_layers * size);
    projected_ = backend_.make_rows(rows, config_.n_layers * size);
    embedding_gate_ = backend_.make_rows(rows, size);
  }
  branch_ = backend_.make_rows(rows, config_.hidden_size);
  last_ = backend_.make_rows(limits_.max_logits_rows, config_.hidden_size);
  logits_ = backend_.make_rows(limits_.max_logits_rows, config_.vocab_size);
  for (const Rope& rope : ropes_) angles_.push_back(backend_.make_rows(rows, rope.dims));
}

KvGeometry Decoder::kv_geometry(int n_blocks, int n_state_slots) const {
  return imp::kv_geometry(config_, kv_block_tokens_, n_blocks, n_state_slots);
}

Rows Decoder::forward(const Batch& batch, KvPool& pool) {
  IMP_CHECK(batch.tokens.size() <= static_cast<std::size_t>(limits_.max_rows));
  IMP_CHECK(batch.positions.size() == batch.tokens.size());
  IMP_CHECK(batch.logits_rows.size() <= static_cast<std::size_t>(limits_.max_logits_rows));
  backend_.run_step(batch, pool, *this);
  return first(logits_, batch.logits_rows.size());
}

void Decoder::run(const Batch& batch, KvPool& pool) {
  embed(batch);
  for (int layer = 0; layer < config_.n_layers; ++layer) {
    const LayerConfig& config = config_.layers[static_cast<std::size_t>(layer)];
    take_widths_of(config);
    config.state == kNoState ? attention(batch, pool, layer) : linear_attention(batch, pool, layer);
    feed_forward(layer);
    end_layer(layer);
  }
  head(batch);
}

void Decoder::embed(const Batch& batch) {
  const std::size_t n = batch.tokens.size();
  for (Rows* rows : {&x_,
                     &normed_,
                     &q_,
                     &k_,
                     &v_,
                     &attended_,
                     &gate_,
                     &scores_,
                     &branch_,
                     &shared_score_,
                     &shared_gate_,
                     &shared_,
                     &expert_branch_,
                     &layer_inputs_,
                     &projected_,
                     &embedding_gate_,
                     &output_gate_,
                     &mixed_,
                     &convolved_,
                     &steps_,
                     &strengths_,
                     &linear_gate_,
                     &read_}) {
    *rows = first(*rows, n);
  }
  const auto grouped = static_cast<std::size_t>(grouped_rows(config_, static_cast<int>(n)));
  for (Rows* rows : {&expert_gate_, &expert_up_, &grouped_}) *rows = first(*rows, grouped);
  routed_.n_rows = static_cast<int>(n);
  for (std::size_t i = 0; i < ropes_.size(); ++i) {
    angles_[i] = first(angles_[i], n);
    backend_.rope_angles(batch.positions, ropes_[i], angles_[i]);
  }
  backend_.embed(batch.tokens, *weights_.embedding, config_.embedding_scale, x_);
  if (config_.layer_embedding.size > 0) embed_for_layers(batch);
  const LayerWeights& first_layer = weights_.layers.front();
  if (!reads_stream()) normalize(x_, first_layer.attention_norm, first_layer.q.get(), normed_);
}

// The weights of the projection's norm hold its scale.
void Decoder::embed_for_layers(const Batch& batch) {
  const LayerEmbedding& embedding = config_.layer_embedding;
  backend_.embed(batch.tokens, *weights_.layer_table, embedding.table_scale, layer_inputs_);
  backend_.linear(x_, std::array{LinearTerm{weights_.layer_projection.get(), nullptr, projected_}});
  const Norm of_layer = {.weight = weights_.layer_projection_norm.get(), .epsilon = embedding.norm_epsilon};
  backend_.norm_heads(projected_, embedding.size, of_layer, projected_);
  backend_.add(layer_inputs_, projected_);
}

void Decoder::take_widths_of(const LayerConfig& layer) {
  q_.width = attended_.width = output_gate_.width = config_.n_heads * layer.head_dim;
  k_.width = v_.width = layer.n_kv_heads * layer.head_dim;
  gate_.width = layer.ffn_size;
}

Norm Decoder::norm(const Values& weight) const {
  return {.weight = weight.get(), .epsilon = config_.norm_epsilon};
}

Norm Decoder::norm(const NormWeights& weights, const Linear* reader) const {
  return {
      .weight = weights.weight.get(), .epsilon = config_.norm_epsilon, .reader = reader, .bias = weights.bias.get()};
}

void Decoder::normalize(Rows x, const NormWeights& weights, const Linear* reader, Rows out) {
  if (config_.norm_kind == NormKind::rms) return backend_.rms_norm(x, norm(weights, reader), out);
  backend_.layer_norm(x, norm(weights, reader), out);
}

bool Decoder::reads_stream() const {
  return config_.norm_placement == NormPlacement::post;
}

Rows Decoder::layer_input() const {
  return reads_stream() ? x_ : normed_;
}

void Decoder::finish_branch(const NormWeights& post_norm) {
  if (config_.norm_placement != NormPlacement::pre) normalize(branch_, post_norm, nullptr, branch_);
  if (config_.residual_scale != 1) backend_.scale(branch_, config_.residual_scale);
}

void Decoder::add_branch(const NormWeights& next_norm, const Linear* reader) {
  if (!reads_stream() && config_.norm_kind == NormKind::rms) {
    return backend_.add_norm(x_, branch_, norm(next_norm, reader), normed_);
  }
  backend_.add(x_, branch_);
  if (!reads_stream()) normalize(x_, next_norm, reader, normed_);
}

// A layer that shares keys and values has no k and v of its own.
void Decoder::project_qkv(const LayerWeights& w, const LayerConfig& layer) {
  const std::array terms = {LinearTerm{w.q.get(), w.q_bias.get(), q_}, LinearTerm{w.k.get(), w.k_bias.get(), k_},
                            LinearTerm{w.v.get(), w.v_bias.get(), v_},
                            LinearTerm{w.output_gate.get(), nullptr, output_gate_}};
  if (layer.shares_kv) return backend_.linear(layer_input(), std::span(terms).first(1));
  if (layer.values_are_keys) {
    backend_.linear(layer_input(), std::span(terms).first(2));
  } else {
    backend_.linear(layer_input(), std::span(terms).first(config_.output_gate ? 4 : 3));
  }
  if (config_.value_norm) backend_.norm_heads(layer.values_are_keys ? k_ : v_, layer.head_dim, norm(Values{}), v_);
}

// A layer without RoPE rotates nothing.
void Decoder::rotate_and_append(const Batch& batch, KvPool& pool, int i, const LayerWeights& w) {
  const LayerConfig& layer = config_.layers[static_cast<std::size_t>(i)];
  const auto at = static_cast<std::size_t>(layer.rope);
  const Rope& rope = layer.rope == kNoRope ? kUnrotated : ropes_[at];
  const Rows angles = layer.rope == kNoRope ? Rows{} : angles_[at];
  const Norm q_norm = norm(w.q_norm), k_norm = norm(w.k_norm);
  if (layer.shares_kv) return backend_.rope(q_, layer.head_dim, q_norm, rope, angles);
  const auto append = [&](const Rope& rotation, const Norm& of_q, const Norm& of_k) {
    backend_.rope_append(pool, layer.kv, batch.sequences, layer.head_dim, rotation, angles, {q_, of_q}, {k_, of_k}, v_);
  };
  switch (config_.qk_norm) {
    case QkNorm::none:
    case QkNorm::head:
      return append(rope, q_norm, k_norm);
    case QkNorm::width:
      backend_.rms_norm(q_, q_norm, q_);
      backend_.rms_norm(k_, k_norm, k_);
      return append(rope, {}, {});
    case QkNorm::rotated_head:
      backend_.rope(q_, layer.head_dim, {}, rope, angles);
      backend_.rope(k_, layer.head_dim, {}, rope, angles);
      return append(kUnrotated, q_norm, k_norm);
  }
}

void Decoder::attention(const Batch& batch, KvPool& pool, int i) {
  const LayerWeights& w = weights_.layers[static_cast<std::size_t>(i)];
  const LayerConfig& layer = config_.layers[static_cast<std::size_t>(i)];
  project_qkv(w, layer);
  rotate_and_append(batch, pool, i, w);
  if (config_.query_scale.growth != 0) backend_.scale_by_position(q_, batch.positions, config_.query_scale);
  AttentionParams params = attention_params(config_, layer);
  params.sinks = w.sinks.get();
  backend_.attend(pool, layer.kv, batch.sequences, params, q_, attended_);
  if (config_.output_gate) backend_.multiply_sigmoid(attended_, output_gate_);
  backend_.linear(attended_, std::array{LinearTerm{w.output.get(), w.output_bias.get(), branch_}});
  finish_attention(w, i);
}

void Decoder::linear_attention(const Batch& batch, KvPool& pool, int i) {
  const LayerWeights& w = weights_.layers[static_cast<std::size_t>(i)];
  const int state = config_.layers[static_cast<std::size_t>(i)].state;
  const DeltaRule& rule = config_.delta;
  backend_.linear(
      layer_input(),
      std::array{LinearTerm{w.q.get(), nullptr, columns(mixed_, 0, rule.key_width())},
                 LinearTerm{w.k.get(), nullptr, columns(mixed_, rule.key_width(), rule.key_width())},
                 LinearTerm{w.v.get(), nullptr, columns(mixed_, 2 * rule.key_width(), rule.value_width())},
                 LinearTerm{w.output_gate.get(), nullptr, linear_gate_}, LinearTerm{w.steps.get(), nullptr, steps_},
                 LinearTerm{w.strengths.get(), nullptr, strengths_}});
  backend_.short_conv(pool, state, batch.sequences, mixed_, *w.conv, convolved_);
  backend_.delta_rule(pool, state, batch.sequences, rule,
                      {convolved_, steps_, strengths_, w.rates.get(), w.step_biases.get()}, read_);
  backend_.rms_norm_gated(read_, norm(w.linear_norm), linear_gate_, read_);
  backend_.linear(read_, std::array{LinearTerm{w.output.get(), nullptr, branch_}});
  finish_attention(w, i);
}

void Decoder::finish_attention(const LayerWeights& w, int i) {
  finish_branch(w.post_attention_norm);
  if (config_.parallel_blocks) return backend_.add(x_, branch_);
  add_branch(w.ffn_norm, first_of_feed_forward(i));
}

const Linear* Decoder::first_of_feed_forward(int i) const {
  const LayerWeights& w = weights_.layers[static_cast<std::size_t>(i)];
  const bool has_experts = config_.layers[static_cast<std::size_t>(i)].has_experts;
  if (has_experts && !config_.dense_beside_experts) return w.router.get();
  return config_.plain_activation ? w.up.get() : w.gate.get();
}

void Decoder::feed_forward(int i) {
  const LayerWeights& w = weights_.layers[static_cast<std::size_t>(i)];
  const LayerConfig& layer = config_.layers[static_cast<std::size_t>(i)];
  if (!layer.has_experts) {
    dense(w, layer);
  } else {
    config_.dense_beside_experts ? dense_and_experts(w, layer) : experts(w, branch_);
  }
  finish_branch(w.post_ffn_norm);
}

void Decoder::end_layer(int i) {
  const LayerConfig& layer = config_.layers[static_cast<std::size_t>(i)];
  if (config_.layer_embedding.size > 0) {
    backend_.add(x_, branch_);
    layer_embedding(i);
  }
  const bool is_last = i + 1 == config_.n_layers;
  const LayerWeights& next = weights_.layers[static_cast<std::size_t>(is_last ? i : i + 1)];
  if (!is_last && layer.output_scale == 1) return add_branch(next.attention_norm, next.q.get());
  backend_.add(x_, branch_);
  if (layer.output_scale != 1) backend_.scale(x_, layer.output_scale);
  if (!is_last && !reads_stream()) normalize(x_, next.attention_norm, next.q.get(), normed_);
}

// The stream gates the layer's own embedding of the token.
void Decoder::layer_embedding(int i) {
  const LayerWeights& w = weights_.layers[static_cast<std::size_t>(i)];
  Rows own = layer_inputs_;
  own.width = config_.layer_embedding.size;
  own.data += std::ptrdiff_t{i} * own.width;
  backend_.linear(x_, std::array{LinearTerm{w.embedding_gate.get(), nullptr, embedding_gate_}});
  backend_.gated_activation(config_.activation, embedding_gate_, own, embedding_gate_);
  backend_.linear(embedding_gate_, std::array{LinearTerm{w.embedding_output.get(), nullptr, branch_}});
  normalize(branch_, w.post_embedding_norm, nullptr, branch_);
}

void Decoder::dense(const LayerWeights& w, const LayerConfig& layer) {
  if (config_.plain_activation) {
    backend_.linear(layer_input(), std::array{LinearTerm{w.up.get(), w.up_bias.get(), gate_}});
    backend_.activate(*config_.plain_activation, layer.xielu, gate_);
  } else {
    backend_.gated_linear(layer_input(), {w.gate.get(), w.gate_bias.get(), w.up.get(), w.up_bias.get(), gate_},
                          config_.activation);
  }
  backend_.linear(gate_, std::array{LinearTerm{w.down.get(), w.down_bias.get(), branch_}});
}

// The shared expert needs no routing. It is computed together with the router, which reads the same input.
void Decoder::route(const LayerWeights& w) {
  const LinearTerm router{w.router.get(), w.router_bias.get(), scores_};
  if (config_.shared_ffn_size > 0 && config_.shared_is_gated) {
    backend_.linear(layer_input(), std::array{router, LinearTerm{w.shared_router.get(), nullptr, shared_score_}});
  } else {
    backend_.linear(layer_input(), std::array{router});
  }
  if (config_.shared_ffn_size > 0) {
    backend_.gated_linear(layer_input(), {w.shared_gate.get(), nullptr, w.shared_up.get(), nullptr, shared_gate_},
                          config_.activation);
    backend_.linear(shared_gate_, std::array{LinearTerm{w.shared_down.get(), nullptr, shared_}});
  }
  backend_.route_experts(scores_, config_.experts, routed_);
  if (config_.has_expert_scales) backend_.scale_experts(routed_, *w.expert_scales);
}

void Decoder::experts(const LayerWeights& w, Rows out) {
  route(w);
  mix_experts(w, out);
  if (config_.shared_ffn_size == 0) return;
  config_.shared_is_gated ? backend_.add_gated(out, shared_, shared_score_) : backend_.add(out, shared_);
}

void Decoder::dense_and_experts(const LayerWeights& w, const LayerConfig& layer) {
  dense(w, layer);
  normalize(branch_, w.post_dense_norm, nullptr, branch_);
  normalize(x_, w.router_norm, w.router.get(), normed_);
  route(w);
  normalize(x_, w.expert_norm, w.expert_gates.front().get(), normed_);
  mix_experts(w, expert_branch_);
  normalize(expert_branch_, w.post_expert_norm, nullptr, expert_branch_);
  backend_.add(branch_, expert_branch_);
}

void Decoder::mix_experts(const LayerWeights& w, Rows out) {
  backend_.expert_linear_in(layer_input(), routed_,
                            std::array{ExpertTerm{w.expert_gates, expert_gate_, w.expert_gate_biases.get()},
                                       ExpertTerm{w.expert_ups, expert_up_, w.expert_up_biases.get()}});
  if (config_.clamped_silu) {
    backend_.clamped_activation(*config_.clamped_silu, expert_gate_, expert_up_, expert_gate_);
  } else {
    backend_.gated_activation(config_.activation, expert_gate_, expert_up_, expert_gate_);
  }
  backend_.expert_linear_out(expert_gate_, routed_, {w.expert_downs, grouped_, w.expert_down_biases.get()});
  backend_.mix_experts(grouped_, routed_, out);
}

void Decoder::head(const Batch& batch) {
  IMP_CHECK(batch.logits_rows.size() <= static_cast<std::size_t>(limits_.max_logits_rows));
  const Rows last = first(last_, batch.logits_rows.size());
  const Rows logits = first(logits_, batch.logits_rows.size());
  backend_.gather_rows(x_, batch.logits_rows, last);
  normalize(last, weights_.final_norm, &weights_.output_head(), last);
  backend_.linear(last, std::array{LinearTerm{&weights_.output_head(), nullptr, logits}});
  if (config_.logit_scale != 1) backend_.scale(logits, config_.logit_scale);
  if (config_.logit_soft_cap > 0) backend_.soft_cap(logits, config_.logit_soft_cap);
}

namespace {

// The ops in use that a backend may lack.
std::vector<Op> special_ops(const ModelConfig& config) {
  std::vector<Op> ops;
  const auto add = [&](bool is_used, Op op) {
    if (is_used) ops.push_back(op);
  };
  const auto is_scaled = [](const LayerConfig& layer) { return layer.output_scale != 1; };
  add(config.value_norm || config.layer_embedding.size > 0, Op::norm_heads);
  add(config.has_expert_scales, Op::scale_experts);
  add(config.residual_scale != 1 || config.logit_scale != 1 || std::ranges::any_of(config.layers, is_scaled),
      Op::scale);
  add(config.norm_kind == NormKind::layer, Op::layer_norm);
  add(config.plain_activation.has_value(), Op::activate);
  add(config.query_scale.growth != 0, Op::scale_by_position);
  add(config.attention_sinks, Op::attend_sinks);
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
  widest.n_kv_heads = config.most(&LayerConfig::n_kv_heads);
  widest.head_dim = config.most(&LayerConfig::head_dim);
  return widest;
}

}  // namespace

WorkspaceNeeds workspace_needs(const ModelConfig& config, const ForwardLimits& limits) {
  return {.max_rows = limits.max_rows,
          .max_logits_rows = limits.max_logits_rows,
          .max_sequences = std::min(limits.max_rows, limits.max_logits_rows),
          .vocab_size = config.vocab_size,
          .max_context = config.max_context,
          .ops = special_ops(config),
          .attention = widest_attention(config),
          .weights = {},
          .experts = config.experts};
}

std::uint64_t activation_bytes(const ModelConfig& config, const ForwardLimits& limits) {
  // Rows are aligned to 64 bytes.
  const auto bytes = [](std::int64_t n_rows, std::int64_t width) {
    return static_cast<std::uint64_t>(n_rows * round_up(width, 16)) * sizeof(float);
  };
  const std::int64_t rows = limits.max_rows;
  const std::int64_t q_width = std::int64_t{config.n_heads} * config.most(&LayerConfig::head_dim);
  const std::int64_t kv_width = config.widest_kv();
  std::uint64_t total = 3 * bytes(rows, config.hidden_size) + 2 * bytes(rows, q_width) + 2 * bytes(rows, kv_width) +
                        bytes(limits.max_logits_rows, config.hidden_size);
  if (config.output_gate) total += bytes(rows, q_width);
  if (config.n_state_layers() > 0) {
    total += 2 * bytes(rows, config.delta.width()) + 2 * bytes(rows, config.delta.n_value_heads) +
             2 * bytes(rows, config.delta.value_width());
  }
  if (config.has_dense_layers()) total += bytes(rows, config.most(&LayerConfig::ffn_size));
  if (config.dense_beside_experts) total += bytes(rows, config.hidden_size);
  if (const std::int64_t size = config.layer_embedding.size; size > 0) {
    total += 2 * bytes(rows, config.n_layers * size) + bytes(rows, size);
  }
  if (config.has_experts()) {
    const int grouped = grouped_rows(config, limits.max_rows);
    total += 2 * bytes(grouped, config.expert_ffn_size) + bytes(rows, config.experts.n_experts) +
             bytes(grouped, config.hidden_size) + expert_rows_bytes(limits.max_rows, config.experts);
  }
  if (config.shared_ffn_size > 0) {
    total += bytes(rows, config.shared_ffn_size) + bytes(rows, config.hidden_size);
    if (config.shared_is_gated) total += bytes(rows, 1);
  }
  for (const RopeConfig& rope : config.ropes) total += bytes(rows, rope.dims);
  return total;
}

}  // namespace imp
