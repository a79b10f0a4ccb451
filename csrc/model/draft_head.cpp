// Joins embedding and hidden row, and runs the layer.
#include "model/draft_head.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "base/error.h"
#include "model/decoder.h"
#include "model/row_views.h"

namespace imp {
namespace {

constexpr int kHeadLayer = 0;  // of the cache

}  // namespace

DraftHead::DraftHead(const HeadModel& head, const Model& target, Backend& backend, const ForwardLimits& limits)
    : head_(head),
      target_(target),
      backend_(backend),
      limits_(limits),
      feed_forward_(sizes(), backend, limits.max_logits_rows) {
  make_workspace();
  WorkspaceNeeds needs = head_workspace_needs(head.config, target.config(), limits);
  const HeadWeights& w = head.weights;
  for (const Matrix* weight : {&w.embedding, &w.fuse}) {
    if (*weight) needs.weights.push_back(weight->get());
  }
  add_matrices(w.layer, needs);
  needs.weights.push_back(&output_head());
  backend_.reserve(needs);
}

KvGeometry DraftHead::kv_geometry(int n_blocks) const {
  return head_kv_geometry(head_.config, target_.kv_block_tokens(), n_blocks);
}

Norm DraftHead::norm(const Values& weight, const Linear* reader) const {
  return {.weight = weight.get(), .epsilon = sizes().norm_epsilon, .reader = reader};
}

const Values& DraftHead::final_norm() const {
  return head_.weights.final_norm ? head_.weights.final_norm : target_.weights().final_norm.weight;
}

const Linear& DraftHead::embedding() const {
  return head_.weights.embedding ? *head_.weights.embedding : *target_.weights().embedding;
}

const Linear& DraftHead::output_head() const {
  return head_.weights.head ? *head_.weights.head : target_.weights().output_head();
}

void DraftHead::observe(const Batch& batch, Rows hidden, std::span<const std::int32_t> from, KvPool& pool) {
  IMP_CHECK(from.size() == batch.tokens.size() && hidden.width == head_.config.hidden_width());
  take_rows(batch.tokens.size());
  backend_.gather_rows(hidden, from, source_);
  if (head_.config.taps.empty()) {
    join(batch, source_);
  } else {
    if (head_.weights.tap_norm) backend_.rms_norm(source_, norm(head_.weights.tap_norm), source_);
    backend_.linear(source_, std::array{LinearTerm{head_.weights.fuse.get(), nullptr, own_}});
    join(batch, own_);
  }
  append(batch, pool);
}

void DraftHead::observe_guesses(const Batch& batch, std::span<const std::int32_t> from, KvPool& pool) {
  IMP_CHECK(from.size() == batch.tokens.size());
  take_rows(batch.tokens.size());
  backend_.gather_rows(next_, from, own_);
  join(batch, own_);
  append(batch, pool);
}

void DraftHead::take_rows(std::size_t n) {
  IMP_CHECK(n <= static_cast<std::size_t>(limits_.max_rows));
  for (Rows* rows : {&source_, &own_, &embedded_, &pair_, &residual_, &joined_, &k_, &v_, &angles_}) {
    *rows = first(*rows, n);
  }
}

void DraftHead::join(const Batch& batch, Rows own) {
  const HeadConfig& config = head_.config;
  const HeadWeights& w = head_.weights;
  const int hidden = sizes().hidden_size;
  const Rows both = config.joins_for_attention ? joined_ : pair_;
  const Rows embedding_half = columns(both, config.hidden_comes_first ? hidden : 0, hidden);
  const Rows hidden_half = columns(both, config.hidden_comes_first ? 0 : hidden, hidden);
  backend_.embed(batch.tokens, embedding(), target_.config().embedding_scale, embedded_);
  backend_.rms_norm(embedded_, norm(w.embedding_norm), embedding_half);
  backend_.rms_norm(own, norm(w.hidden_norm), hidden_half);
  if (!config.joins_for_attention) {
    backend_.linear(pair_, std::array{LinearTerm{w.fuse.get(), nullptr, residual_}});
    return backend_.rms_norm(residual_, norm(w.layer.attention_norm.weight), joined_);
  }
  if (config.residual_is_normed) return backend_.rms_norm(own, norm(w.hidden_norm), residual_);
  std::swap(residual_.data, own_.data);  // both have the same shape
}

void DraftHead::append(const Batch& batch, KvPool& pool) {
  const LayerWeights& w = head_.weights.layer;
  backend_.linear(joined_,
                  std::array{LinearTerm{w.k.get(), w.k_bias.get(), k_}, LinearTerm{w.v.get(), w.v_bias.get(), v_}});
  backend_.rope_angles(batch.positions, head_.rope, angles_);
  backend_.rope(k_, sizes().head_dim, norm(w.k_norm), head_.rope, angles_);
  backend_.append_kv(pool, kHeadLayer, batch.sequences, k_, v_);
}

Rows DraftHead::guess(const Batch& batch, std::span<const std::int32_t> rows, const KvPool& pool) {
  const std::size_t n = rows.size();
  IMP_CHECK(n <= static_cast<std::size_t>(limits_.max_logits_rows));
  for (Rows* each : {&x_, &input_, &q_, &gate_, &attended_, &branch_, &normed_, &next_, &guess_angles_, &own_logits_}) {
    *each = first(*each, n);
  }
  backend_.gather_rows(residual_, rows, x_);
  backend_.gather_rows(joined_, rows, input_);
  attend(batch, pool);
  const LayerWeights& w = head_.weights.layer;
  const LayerConfig& layer = sizes().layers.front();
  backend_.add_norm(x_, branch_, norm(w.ffn_norm.weight, feed_forward_.first_product(w, layer)), normed_);
  feed_forward_.run(w, layer, x_, normed_, branch_);
  backend_.add(x_, branch_);
  return logits(n);
}

void DraftHead::attend(const Batch& batch, const KvPool& pool) {
  const LayerWeights& w = head_.weights.layer;
  const std::array terms = {LinearTerm{w.q.get(), w.q_bias.get(), q_}, LinearTerm{w.output_gate.get(), nullptr, gate_}};
  backend_.linear(input_, std::span(terms).first(sizes().output_gate ? 2 : 1));
  backend_.rope_angles(batch.positions, head_.rope, guess_angles_);
  backend_.rope(q_, sizes().head_dim, norm(w.q_norm), head_.rope, guess_angles_);
  backend_.attend(pool, kHeadLayer, batch.sequences, attention_params(sizes(), sizes().layers.front()), q_, attended_);
  if (sizes().output_gate) backend_.multiply_sigmoid(attended_, gate_);
  backend_.linear(attended_, std::array{LinearTerm{w.output.get(), w.output_bias.get(), branch_}});
}

Rows DraftHead::logits(std::size_t n) {
  const ModelConfig& target = target_.config();
  const bool has_all_tokens = head_.weights.token_ids.empty();
  const Rows all = first(logits_, n);
  const Rows own = has_all_tokens ? all : own_logits_;
  backend_.rms_norm(x_, norm(final_norm(), &output_head()), normed_);
  backend_.linear(normed_, std::array{LinearTerm{&output_head(), nullptr, own}});
  std::swap(next_.data, (head_.config.feeds_back_normed ? normed_ : x_).data);  // all have the same shape
  if (!has_all_tokens) backend_.spread_columns(own, head_.weights.token_ids, all);
  if (head_.weights.head) return all;
  if (target.logit_scale != 1) backend_.scale(all, target.logit_scale);
  if (target.logit_soft_cap > 0) backend_.soft_cap(all, target.logit_soft_cap);
  return all;
}

void DraftHead::make_workspace() {
  const ModelConfig& config = sizes();
  const int rows = limits_.max_rows, guesses = limits_.max_logits_rows;
  const int hidden = config.hidden_size, q_width = config.n_heads * config.head_dim;
  const int kv_width = config.n_kv_heads * config.head_dim;
  source_ = backend_.make_rows(rows, head_.config.hidden_width());
  for (Rows* each : {&own_, &embedded_, &residual_}) *each = backend_.make_rows(rows, hidden);
  if (!head_.config.joins_for_attention) pair_ = backend_.make_rows(rows, 2 * hidden);
  joined_ = backend_.make_rows(rows, head_.config.attention_width());
  for (Rows* each : {&k_, &v_}) *each = backend_.make_rows(rows, kv_width);
  angles_ = backend_.make_rows(rows, head_.rope.dims);
  for (Rows* each : {&x_, &branch_, &normed_, &next_}) *each = backend_.make_rows(guesses, hidden);
  input_ = backend_.make_rows(guesses, head_.config.attention_width());
  for (Rows* each : {&q_, &attended_}) *each = backend_.make_rows(guesses, q_width);
  if (config.output_gate) gate_ = backend_.make_rows(guesses, q_width);
  guess_angles_ = backend_.make_rows(guesses, head_.rope.dims);
  if (!head_.weights.token_ids.empty()) own_logits_ = backend_.make_rows(guesses, config.vocab_size);
  logits_ = backend_.make_rows(guesses, vocab_size());
}

std::uint64_t head_activation_bytes(const HeadConfig& config, int target_vocab_size, const ForwardLimits& limits) {
  const ModelConfig& sizes = config.layer;
  const std::int64_t rows = limits.max_rows, guesses = limits.max_logits_rows, hidden = sizes.hidden_size;
  const std::int64_t q_width = std::int64_t{sizes.n_heads} * sizes.head_dim;
  const std::int64_t kv_width = std::int64_t{sizes.n_kv_heads} * sizes.head_dim;
  const std::int64_t dims = sizes.ropes.front().dims;
  std::uint64_t total = 2 * bytes_of_rows(rows, config.hidden_width()) + 3 * bytes_of_rows(rows, hidden) +
                        bytes_of_rows(rows, config.attention_width()) + 2 * bytes_of_rows(rows, kv_width) +
                        bytes_of_rows(rows, dims);
  if (!config.joins_for_attention) total += bytes_of_rows(rows, 2 * hidden);
  total += 4 * bytes_of_rows(guesses, hidden) + bytes_of_rows(guesses, config.attention_width()) +
           2 * bytes_of_rows(guesses, q_width) + feed_forward_bytes(sizes, limits.max_logits_rows) +
           bytes_of_rows(guesses, dims) + bytes_of_rows(guesses, target_vocab_size);
  if (sizes.output_gate) total += bytes_of_rows(guesses, q_width);
  if (!config.tensors.ids.empty()) total += bytes_of_rows(guesses, sizes.vocab_size);
  return total;
}

WorkspaceNeeds head_workspace_needs(const HeadConfig& config, const ModelConfig& target, const ForwardLimits& limits) {
  WorkspaceNeeds needs = workspace_needs(config.layer, limits);
  needs.vocab_size = target.vocab_size;
  if (!config.tensors.ids.empty()) needs.ops.push_back(Op::spread_columns);
  return needs;
}

}  // namespace imp
