// The buffers of a layer, and the residual stream.
#include "model/layer/layer_body.h"

#include <algorithm>
#include <cstddef>

#include "model/layer/normalize.h"
#include "model/layer/row_views.h"

namespace imp {

void LayerRows::declare(const ModelConfig& config, LayerParts parts, Workspace& workspace) {
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t q_width = std::int64_t{config.n_heads} * config.max_of(&LayerConfig::head_dim);
  angles.resize(config.ropes.size());
  for (std::size_t i = 0; i < angles.size(); ++i) workspace.add(angles[i], config.ropes[i].dims);
  if (has_keys(parts)) {
    for (Rows* each : {&k, &v}) workspace.add(*each, config.widest_kv());
  }
  if (!has_queries(parts)) return;
  for (Rows* each : {&x, &normed, &branch}) workspace.add(*each, hidden);
  for (Rows* each : {&q, &attended}) workspace.add(*each, q_width);
  if (config.output_gate) workspace.add(output_gate, q_width);
  if (config.n_state_layers() > 0) {
    const DeltaRule& rule = config.delta;
    for (Rows* each : {&mixed, &convolved}) workspace.add(*each, rule.width());
    for (Rows* each : {&alpha, &beta}) workspace.add(*each, rule.n_value_heads);
    for (Rows* each : {&linear_gate, &read}) workspace.add(*each, rule.value_width());
  }
  feed_forward.declare(config, workspace);
}

LayerBody::LayerBody(const ModelConfig& config, std::span<const Rope> ropes, Backend& backend, Workspace& workspace,
                     LayerParts parts)
    : config_(config), ropes_(ropes), backend_(backend), feed_forward_(config, backend, rows_.feed_forward) {
  rows_.declare(config, parts, workspace);
}

void LayerBody::begin(std::span<const std::int32_t> positions) {
  for (std::size_t i = 0; i < ropes_.size(); ++i) backend_.rope_angles(positions, ropes_[i], rows_.angles[i]);
}

Norm LayerBody::norm(const Values& weight) const noexcept {
  return {.weight = weight.get(), .epsilon = config_.norm_epsilon};
}

const Linear* LayerBody::first_product(const Layer& layer) noexcept {
  return layer.config.clips ? nullptr : layer.weights.q.get();
}

bool LayerBody::reads_stream() const noexcept {
  return !config_.norms_inputs();
}

Rows LayerBody::input() const noexcept {
  return reads_stream() ? rows_.x : rows_.normed;
}

Rows LayerBody::attention_input(const LayerConfig& layer) const noexcept {
  return layer.has_attention_norm ? input() : rows_.x;
}

void LayerBody::normalize_for(const Layer& first) {
  if (reads_stream() || !first.config.has_attention_norm) return;
  normalize(backend_, config_, rows_.x, first.weights.attention_norm, first_product(first), rows_.normed);
}

void LayerBody::normalize_again(const Layer& next, int first_row, std::size_t n_rows) {
  if (reads_stream()) return;
  normalize(backend_, config_, rows_from(rows_.x, first_row, n_rows), next.weights.attention_norm, nullptr,
            rows_from(rows_.normed, first_row, n_rows));
}

void LayerBody::feed_forward(const Layer& layer) {
  feed_forward_.run(layer, rows_.x, input(), rows_.branch);
  finish_branch(layer.weights.post_ffn_norm);
}

void LayerBody::finish_branch(const NormWeights& post_norm) {
  if (config_.norm_placement != NormPlacement::pre && !has_after_sum()) {
    normalize(backend_, config_, rows_.branch, post_norm, nullptr, rows_.branch);
  }
  if (config_.residual_scale != 1) backend_.scale(rows_.branch, config_.residual_scale);
}

void LayerBody::add_branch(const Layer& layer, const Layer* next) {
  if (next != nullptr && !next->config.has_attention_norm) next = nullptr;
  const Linear* const reader = next == nullptr ? nullptr : first_product(*next);
  if (has_after_sum()) return add_and_normalize_stream(layer.weights.post_ffn_norm, reader);
  add_and_normalize(layer.config.output_scale, next == nullptr ? nullptr : &next->weights.attention_norm, reader);
}

// `next_norm` and `reader`: the norm and the product of the op that reads the stream next, or null.
void LayerBody::add_and_normalize(float scale, const NormWeights* next_norm, const Linear* reader) {
  const bool is_read_normed = next_norm != nullptr && !reads_stream();
  if (is_read_normed && scale == 1 && config_.norm_kind == NormKind::rms) {
    return backend_.add_norm(rows_.x, rows_.branch, norm_of(config_, *next_norm, reader), rows_.normed);
  }
  backend_.add(rows_.x, rows_.branch);
  if (scale != 1) backend_.scale(rows_.x, scale);
  if (is_read_normed) normalize(backend_, config_, rows_.x, *next_norm, reader, rows_.normed);
}

void LayerBody::add_and_normalize_stream(const NormWeights& norm, const Linear* reader) {
  backend_.add(rows_.x, rows_.branch);
  normalize(backend_, config_, rows_.x, norm, reader, rows_.x);
}

void LayerBody::finish_attention(const Layer& layer) {
  finish_branch(layer.weights.post_attention_norm);
  if (has_after_sum()) {
    return add_and_normalize_stream(layer.weights.post_attention_norm, feed_forward_.first_product(layer));
  }
  if (config_.parallel_blocks) return backend_.add(rows_.x, rows_.branch);
  add_and_normalize(1, &layer.weights.ffn_norm, feed_forward_.first_product(layer));
}

}  // namespace imp
