// The forward pass of a transformer decoder.
#include "model/decoder.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <utility>

#include "base/error.h"
#include "model/normalize.h"
#include "model/row_views.h"

namespace imp {
namespace {

void add_all_matrices(const Weights& weights, WorkspaceNeeds& needs) {
  for (const Matrix* weight : {&weights.embedding, &weights.layer_table, &weights.layer_projection, &weights.head}) {
    if (*weight) needs.weights.push_back(weight->get());
  }
  for (const LayerWeights& layer : weights.layers) add_matrices(layer, needs);
}

}  // namespace

void add_matrices(const LayerWeights& w, WorkspaceNeeds& needs) {
  for (const Matrix* weight :
       {&w.q, &w.k, &w.v, &w.output_gate, &w.alpha, &w.beta, &w.output, &w.gate, &w.up, &w.down, &w.router,
        &w.shared_router, &w.shared_gate, &w.shared_up, &w.shared_down, &w.embedding_gate, &w.embedding_output}) {
    if (*weight) needs.weights.push_back(weight->get());
  }
  for (const Stack* stack : {&w.expert_gates, &w.expert_ups, &w.expert_downs}) {
    for (const Matrix& weight : *stack) needs.expert_weights.push_back(weight.get());
  }
}

Decoder::Decoder(const Model& model, Backend& backend, const ForwardLimits& limits, HiddenRows kept)
    : config_(model.config()),
      weights_(model.weights()),
      ropes_(model.ropes()),
      backend_(backend),
      limits_(limits),
      kv_block_tokens_(model.kv_block_tokens()),
      feed_forward_(config_, backend, limits.max_rows),
      kept_(std::move(kept)) {
  IMP_CHECK(limits.max_rows > 0 && limits.max_logits_rows > 0);
  make_workspace();
  WorkspaceNeeds needs = workspace_needs(config_, limits_);
  add_all_matrices(weights_, needs);
  backend_.reserve(needs);
}

KvGeometry Decoder::kv_geometry(int n_blocks, int n_state_slots) const {
  return imp::kv_geometry(config_, kv_block_tokens_, n_blocks, n_state_slots);
}

bool Decoder::takes_gaps() const noexcept {
  return config_.n_state_layers() == 0 && std::ranges::none_of(config_.layers, [this](const LayerConfig& layer) {
           return layer.window > 0 && layer.window < config_.max_context;
         });
}

void Decoder::watch(AttentionWatch* watch) {
  IMP_CHECK(watch == nullptr || limits_.is_watched);
  watch_ = watch;
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
    if (kept_.are_kept) keep_stream(layer);
    take_widths_of(config);
    config.state == kNoState ? attention(batch, pool, layer) : linear_attention(batch, pool, layer);
    feed_forward(layer);
    end_layer(layer);
  }
  if (kept_.are_kept) keep_stream(config_.n_layers);
  if (kept_.are_kept && kept_.taps.empty()) keep_final_norm();
  head(batch);
}

void Decoder::keep_stream(int layer) {
  const std::span<const std::int32_t> rows = std::span(every_row_).first(static_cast<std::size_t>(x_.n_rows));
  for (std::size_t i = 0; i < kept_.taps.size(); ++i) {
    if (kept_.taps[i] != layer) continue;
    const int size = config_.hidden_size;
    backend_.gather_rows(x_, rows, columns(hidden_, static_cast<int>(i) * size, size));
  }
}

// The head's rows are normalized apart from those with logits, so that these have the same bits with and without it.
void Decoder::keep_final_norm() {
  normalize(x_, weights_.final_norm, nullptr, hidden_);
}

void Decoder::embed(const Batch& batch) {
  const std::size_t n = batch.tokens.size();
  for (Rows* rows : {&x_, &normed_, &q_, &k_, &v_, &attended_, &branch_, &layer_inputs_, &projected_, &embedding_gate_,
                     &output_gate_, &mixed_, &convolved_, &alpha_, &beta_, &linear_gate_, &read_, &hidden_}) {
    *rows = first(*rows, n);
  }
  for (std::size_t i = 0; i < ropes_.size(); ++i) {
    angles_[i] = first(angles_[i], n);
    backend_.rope_angles(batch.positions, ropes_[i], angles_[i]);
  }
  backend_.embed(batch.tokens, *weights_.embedding, config_.embedding_scale, x_);
  if (config_.layer_embedding.size > 0) embed_for_layers(batch);
  const LayerWeights& first_layer = weights_.layers.front();
  if (!reads_stream()) normalize(x_, first_layer.attention_norm, first_layer.q.get(), normed_);
}

void Decoder::take_widths_of(const LayerConfig& layer) {
  q_.width = attended_.width = output_gate_.width = config_.n_heads * layer.head_dim;
  k_.width = v_.width = layer.n_kv_heads * layer.head_dim;
}

Norm Decoder::norm(const Values& weight) const {
  return {.weight = weight.get(), .epsilon = config_.norm_epsilon};
}

void Decoder::normalize(Rows x, const NormWeights& weights, const Linear* reader, Rows out) {
  imp::normalize(backend_, config_, x, weights, reader, out);
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

void Decoder::add_branch(float scale, const NormWeights* next_norm, const Linear* reader) {
  const bool is_read_normed = next_norm != nullptr && !reads_stream();
  if (is_read_normed && scale == 1 && config_.norm_kind == NormKind::rms) {
    return backend_.add_norm(x_, branch_, norm_of(config_, *next_norm, reader), normed_);
  }
  backend_.add(x_, branch_);
  if (scale != 1) backend_.scale(x_, scale);
  if (is_read_normed) normalize(x_, *next_norm, reader, normed_);
}

void Decoder::feed_forward(int i) {
  const LayerWeights& w = weights_.layers[static_cast<std::size_t>(i)];
  feed_forward_.run(w, config_.layers[static_cast<std::size_t>(i)], x_, layer_input(), branch_);
  finish_branch(w.post_ffn_norm);
}

void Decoder::end_layer(int i) {
  if (config_.layer_embedding.size > 0) {
    backend_.add(x_, branch_);
    layer_embedding(i);
  }
  const float scale = config_.layers[static_cast<std::size_t>(i)].output_scale;
  if (i + 1 == config_.n_layers) return add_branch(scale, nullptr, nullptr);
  const LayerWeights& next = weights_.layers[static_cast<std::size_t>(i) + 1];
  add_branch(scale, &next.attention_norm, next.q.get());
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

}  // namespace imp
