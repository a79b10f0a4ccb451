// The forward pass of a transformer decoder.
#include "model/decoder.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "base/ceil_div.h"
#include "base/error.h"

namespace imp {
namespace {

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

// Width of the feed-forward's hidden activations.
struct InnerSize {
  int rows = 0;
  int width = 0;
};
InnerSize inner_size(const ModelConfig& config, int rows) {
  if (config.has_experts()) return {rows * config.experts.n_used, config.expert_ffn_size};
  return {rows, config.ffn_size};
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
  const InnerSize inner = inner_size(config_, rows);
  gate_ = backend_.make_rows(inner.rows, inner.width);
  if (config_.has_experts()) {
    up_ = backend_.make_rows(inner.rows, inner.width);
    scores_ = backend_.make_rows(rows, config_.experts.n_experts);
    routed_ = backend_.make_expert_rows(rows, config_.experts);
    grouped_ = backend_.make_rows(inner.rows, config_.hidden_size);
  }
  if (config_.shared_ffn_size > 0) {
    shared_score_ = backend_.make_rows(rows, 1);
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
  for (Rows* rows :
       {&x_, &normed_, &q_, &k_, &v_, &attended_, &scores_, &branch_, &shared_score_, &shared_gate_, &shared_}) {
    *rows = first(*rows, n);
  }
  const auto n_inner = static_cast<std::size_t>(inner_size(config_, static_cast<int>(n)).rows);
  for (Rows* rows : {&gate_, &up_, &grouped_}) *rows = first(*rows, n_inner);
  routed_.n_rows = static_cast<int>(n);
  for (std::size_t i = 0; i < ropes_.size(); ++i) {
    angles_[i] = first(angles_[i], n);
    backend_.rope_angles(batch.positions, ropes_[i], angles_[i]);
  }
  backend_.embed(batch.tokens, *weights_.embedding, config_.embedding_scale, x_);
  const LayerWeights& first_layer = weights_.layers.front();
  backend_.rms_norm(x_, norm(first_layer.attention_norm, first_layer.q.get()), normed_);
}

Norm Decoder::norm(const Values& weight, const Linear* reader) const {
  return {weight.get(), config_.norm_epsilon, reader};
}

void Decoder::norm_branch(const Values& post_norm) {
  if (config_.norm_placement == NormPlacement::pre_and_post) backend_.rms_norm(branch_, norm(post_norm), branch_);
}

void Decoder::attention(const Batch& batch, KvPool& pool, int i) {
  const LayerWeights& w = weights_.layers[static_cast<std::size_t>(i)];
  const LayerConfig& layer = config_.layers[static_cast<std::size_t>(i)];
  backend_.linear(normed_,
                  std::array{LinearTerm{w.q.get(), w.q_bias.get(), q_}, LinearTerm{w.k.get(), w.k_bias.get(), k_},
                             LinearTerm{w.v.get(), w.v_bias.get(), v_}});
  const auto rope = static_cast<std::size_t>(layer.rope);
  backend_.rope_append(pool, i, batch.sequences, config_.head_dim, ropes_[rope], angles_[rope], {q_, norm(w.q_norm)},
                       {k_, norm(w.k_norm)}, v_);
  backend_.attend(pool, i, batch.sequences, attention_params(config_, layer), q_, attended_);
  backend_.linear(attended_, std::array{LinearTerm{w.output.get(), w.output_bias.get(), branch_}});
  norm_branch(w.post_attention_norm);
  backend_.add_norm(x_, branch_, norm(w.ffn_norm, config_.has_experts() ? w.router.get() : w.gate.get()), normed_);
}

void Decoder::feed_forward(int i) {
  const LayerWeights& w = weights_.layers[static_cast<std::size_t>(i)];
  config_.has_experts() ? experts(w) : dense(w);
  norm_branch(w.post_ffn_norm);
  if (i + 1 == config_.n_layers) return backend_.add(x_, branch_);
  const LayerWeights& next = weights_.layers[static_cast<std::size_t>(i) + 1];
  backend_.add_norm(x_, branch_, norm(next.attention_norm, next.q.get()), normed_);
}

void Decoder::dense(const LayerWeights& w) {
  backend_.gated_linear(normed_, {w.gate.get(), w.gate_bias.get(), w.up.get(), w.up_bias.get(), gate_},
                        config_.activation);
  backend_.linear(gate_, std::array{LinearTerm{w.down.get(), w.down_bias.get(), branch_}});
}

// The shared expert needs no routing. It is computed together with the router, which reads the same input.
void Decoder::route(const LayerWeights& w) {
  const LinearTerm router{w.router.get(), nullptr, scores_};
  if (config_.shared_ffn_size == 0) {
    backend_.linear(normed_, std::array{router});
  } else {
    backend_.linear(normed_, std::array{router, LinearTerm{w.shared_router.get(), nullptr, shared_score_}});
    backend_.gated_linear(normed_, {w.shared_gate.get(), nullptr, w.shared_up.get(), nullptr, shared_gate_},
                          config_.activation);
    backend_.linear(shared_gate_, std::array{LinearTerm{w.shared_down.get(), nullptr, shared_}});
  }
  backend_.route_experts(scores_, config_.experts, routed_);
}

void Decoder::experts(const LayerWeights& w) {
  route(w);
  backend_.expert_linear_in(normed_, routed_,
                            std::array{ExpertTerm{w.expert_gates, gate_}, ExpertTerm{w.expert_ups, up_}});
  backend_.gated_activation(config_.activation, gate_, up_, gate_);
  backend_.expert_linear_out(gate_, routed_, {w.expert_downs, grouped_});
  backend_.mix_experts(grouped_, routed_, branch_);
  if (config_.shared_ffn_size > 0) backend_.add_gated(branch_, shared_, shared_score_);
}

void Decoder::head(const Batch& batch) {
  IMP_CHECK(batch.logits_rows.size() <= static_cast<std::size_t>(limits_.max_logits_rows));
  const Rows last = first(last_, batch.logits_rows.size());
  const Rows logits = first(logits_, batch.logits_rows.size());
  backend_.gather_rows(x_, batch.logits_rows, last);
  backend_.rms_norm(last, norm(weights_.final_norm, &weights_.output_head()), last);
  backend_.linear(last, std::array{LinearTerm{&weights_.output_head(), nullptr, logits}});
  if (config_.logit_soft_cap > 0) backend_.soft_cap(logits, config_.logit_soft_cap);
}

WorkspaceNeeds workspace_needs(const ModelConfig& config, const ForwardLimits& limits) {
  return {.max_rows = limits.max_rows,
          .max_logits_rows = limits.max_logits_rows,
          .max_sequences = std::min(limits.max_rows, limits.max_logits_rows),
          .vocab_size = config.vocab_size,
          .max_context = config.max_context,
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
  const InnerSize inner = inner_size(config, limits.max_rows);
  std::uint64_t total = 3 * bytes(rows, config.hidden_size) + 2 * bytes(rows, q_width) + 2 * bytes(rows, kv_width) +
                        bytes(inner.rows, inner.width) + bytes(limits.max_logits_rows, config.hidden_size);
  if (config.has_experts()) {
    total += bytes(inner.rows, inner.width) + bytes(rows, config.experts.n_experts) +
             bytes(inner.rows, config.hidden_size) + expert_rows_bytes(limits.max_rows, config.experts);
  }
  if (config.shared_ffn_size > 0) {
    total += bytes(rows, 1) + bytes(rows, config.shared_ffn_size) + bytes(rows, config.hidden_size);
  }
  for (const RopeConfig& rope : config.ropes) total += bytes(rows, rope.dims);
  return total;
}

}  // namespace imp
