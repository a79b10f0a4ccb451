// The forward pass of a transformer decoder.
#include "model/decoder.h"

#include <algorithm>
#include <array>
#include <cstddef>

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

AttentionParams attention_params(const ModelConfig& config, const LayerConfig& layer) {
  return {.n_heads = config.n_heads,
          .n_kv_heads = config.n_kv_heads,
          .head_dim = config.head_dim,
          .scale = config.attention_scale,
          .soft_cap = config.attention_soft_cap,
          .window = layer.window};
}

void add_matrices(const Weights& weights, WorkspaceNeeds& needs) {
  const auto add = [&](const Matrix& weight) {
    if (weight) needs.weights.push_back(weight.get());
  };
  add(weights.embedding);
  for (const LayerWeights& w : weights.layers) {
    for (const Matrix* weight : {&w.q, &w.k, &w.v, &w.output, &w.gate, &w.up, &w.down, &w.router, &w.shared_router,
                                 &w.shared_gate, &w.shared_up, &w.shared_down}) {
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
  const int q_width = config_.n_heads * config_.head_dim;
  const int kv_width = config_.n_kv_heads * config_.head_dim;
  x_ = backend_.make_rows(rows, config_.hidden_size);
  normed_ = backend_.make_rows(rows, config_.hidden_size);
  q_ = backend_.make_rows(rows, q_width);
  k_ = backend_.make_rows(rows, kv_width);
  v_ = backend_.make_rows(rows, kv_width);
  attended_ = backend_.make_rows(rows, q_width);
  if (config_.has_dense_layers()) gate_ = backend_.make_rows(rows, config_.ffn_size);
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
  branch_ = backend_.make_rows(rows, config_.hidden_size);
  last_ = backend_.make_rows(limits_.max_logits_rows, config_.hidden_size);
  logits_ = backend_.make_rows(limits_.max_logits_rows, config_.vocab_size);
  for (const Rope& rope : ropes_) angles_.push_back(backend_.make_rows(rows, rope.dims));
}

KvGeometry Decoder::kv_geometry(int n_blocks) const {
  return imp::kv_geometry(config_, kv_block_tokens_, n_blocks);
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
    attention(batch, pool, layer);
    feed_forward(layer);
  }
  head(batch);
}

void Decoder::embed(const Batch& batch) {
  const std::size_t n = batch.tokens.size();
  for (Rows* rows : {&x_, &normed_, &q_, &k_, &v_, &attended_, &gate_, &scores_, &branch_, &shared_score_,
                     &shared_gate_, &shared_}) {
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
  const LayerWeights& first_layer = weights_.layers.front();
  if (!reads_stream()) normalize(x_, first_layer.attention_norm, first_layer.q.get(), normed_);
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

// A layer without RoPE rotates nothing.
void Decoder::rotate_and_append(const Batch& batch, KvPool& pool, int i, const LayerWeights& w) {
  const LayerConfig& layer = config_.layers[static_cast<std::size_t>(i)];
  const auto at = static_cast<std::size_t>(layer.rope);
  const Rope& rope = layer.rope == kNoRope ? kUnrotated : ropes_[at];
  const Rows angles = layer.rope == kNoRope ? Rows{} : angles_[at];
  const Norm q_norm = norm(w.q_norm), k_norm = norm(w.k_norm);
  const auto append = [&](const Rope& rotation, const Norm& of_q, const Norm& of_k) {
    backend_.rope_append(pool, i, batch.sequences, config_.head_dim, rotation, angles, {q_, of_q}, {k_, of_k}, v_);
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
      backend_.rope(q_, config_.head_dim, {}, rope, angles);
      backend_.rope(k_, config_.head_dim, {}, rope, angles);
      return append(kUnrotated, q_norm, k_norm);
  }
}

void Decoder::attention(const Batch& batch, KvPool& pool, int i) {
  const LayerWeights& w = weights_.layers[static_cast<std::size_t>(i)];
  const LayerConfig& layer = config_.layers[static_cast<std::size_t>(i)];
  backend_.linear(layer_input(),
                  std::array{LinearTerm{w.q.get(), w.q_bias.get(), q_}, LinearTerm{w.k.get(), w.k_bias.get(), k_},
                             LinearTerm{w.v.get(), w.v_bias.get(), v_}});
  rotate_and_append(batch, pool, i, w);
  if (config_.query_scale.growth != 0) backend_.scale_by_position(q_, batch.positions, config_.query_scale);
  backend_.attend(pool, i, batch.sequences, attention_params(config_, layer), q_, attended_);
  backend_.linear(attended_, std::array{LinearTerm{w.output.get(), w.output_bias.get(), branch_}});
  finish_branch(w.post_attention_norm);
  if (config_.parallel_blocks) return backend_.add(x_, branch_);
  add_branch(w.ffn_norm, first_of_feed_forward(i));
}

const Linear* Decoder::first_of_feed_forward(int i) const {
  const LayerWeights& w = weights_.layers[static_cast<std::size_t>(i)];
  if (config_.layers[static_cast<std::size_t>(i)].has_experts) return w.router.get();
  return config_.plain_activation ? w.up.get() : w.gate.get();
}

void Decoder::feed_forward(int i) {
  const LayerWeights& w = weights_.layers[static_cast<std::size_t>(i)];
  const LayerConfig& layer = config_.layers[static_cast<std::size_t>(i)];
  layer.has_experts ? experts(w) : dense(w, layer);
  finish_branch(w.post_ffn_norm);
  if (i + 1 == config_.n_layers) return backend_.add(x_, branch_);
  const LayerWeights& next = weights_.layers[static_cast<std::size_t>(i) + 1];
  add_branch(next.attention_norm, next.q.get());
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
  const LinearTerm router{w.router.get(), nullptr, scores_};
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
}

void Decoder::experts(const LayerWeights& w) {
  route(w);
  backend_.expert_linear_in(layer_input(), routed_,
                            std::array{ExpertTerm{w.expert_gates, expert_gate_}, ExpertTerm{w.expert_ups, expert_up_}});
  backend_.gated_activation(config_.activation, expert_gate_, expert_up_, expert_gate_);
  backend_.expert_linear_out(expert_gate_, routed_, {w.expert_downs, grouped_});
  backend_.mix_experts(grouped_, routed_, branch_);
  if (config_.shared_ffn_size == 0) return;
  config_.shared_is_gated ? backend_.add_gated(branch_, shared_, shared_score_) : backend_.add(branch_, shared_);
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
  add(config.residual_scale != 1 || config.logit_scale != 1, Op::scale);
  add(config.norm_kind == NormKind::layer, Op::layer_norm);
  add(config.plain_activation.has_value(), Op::activate);
  add(config.query_scale.growth != 0, Op::scale_by_position);
  return ops;
}

}  // namespace

WorkspaceNeeds workspace_needs(const ModelConfig& config, const ForwardLimits& limits) {
  return {.max_rows = limits.max_rows,
          .max_logits_rows = limits.max_logits_rows,
          .max_sequences = std::min(limits.max_rows, limits.max_logits_rows),
          .vocab_size = config.vocab_size,
          .max_context = config.max_context,
          .ops = special_ops(config),
          .attention = attention_params(config, LayerConfig{}),  // the widest attention of any layer
          .weights = {},
          .experts = config.experts};
}

std::uint64_t activation_bytes(const ModelConfig& config, const ForwardLimits& limits) {
  // Rows are aligned to 64 bytes.
  const auto bytes = [](std::int64_t n_rows, std::int64_t width) {
    return static_cast<std::uint64_t>(n_rows * round_up(width, 16)) * sizeof(float);
  };
  const std::int64_t rows = limits.max_rows;
  const std::int64_t q_width = std::int64_t{config.n_heads} * config.head_dim;
  const std::int64_t kv_width = std::int64_t{config.n_kv_heads} * config.head_dim;
  std::uint64_t total = 3 * bytes(rows, config.hidden_size) + 2 * bytes(rows, q_width) + 2 * bytes(rows, kv_width) +
                        bytes(limits.max_logits_rows, config.hidden_size);
  if (config.has_dense_layers()) total += bytes(rows, config.ffn_size);
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
