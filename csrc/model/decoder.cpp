// The forward pass of a transformer decoder.
#include "model/decoder.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>
#include <span>
#include <utility>

#include "base/error.h"
#include "model/config/rope.h"
#include "model/layer/backend_needs.h"
#include "model/layer/normalize.h"
#include "model/layer/row_views.h"

namespace imp {
namespace {

void add_all_matrices(const Weights& weights, WorkspaceNeeds& needs) {
  for (const Matrix* weight :
       {&weights.embedding, &weights.positions, &weights.token_types, &weights.layer_table, &weights.layer_projection,
        &weights.own_output_head, &weights.score_dense.weight, &weights.score_output.weight}) {
    if (*weight) needs.weights.push_back(weight->get());
  }
  for (const BiasedMatrix& projection : weights.projections) needs.weights.push_back(projection.weight.get());
  for (const LayerWeights& layer : weights.layers) add_matrices(layer, needs);
}

}  // namespace

void DecoderRows::declare(const ModelConfig& config, const HiddenRows& kept, Workspace& rows, Workspace& logits_rows) {
  if (const std::int64_t size = config.layer_embedding.size; size > 0) {
    for (Rows* each : {&layer_inputs, &projected}) rows.add(*each, config.n_layers * size);
    rows.add(embedding_gate, size);
  }
  if (kept.are_kept) rows.add(hidden, config.hidden_size * std::max<std::int64_t>(1, std::ssize(kept.taps)));
  if (config.has_head) logits_rows.add(last, config.hidden_size);
}

std::uint64_t activation_bytes(const ModelConfig& config, const ForwardLimits& limits) {
  Workspace rows(limits.max_rows), logits_rows(limits.max_logits_rows);
  LayerRows().declare(config, {}, rows);
  DecoderRows().declare(config, {}, rows, logits_rows);
  VectorRows().declare(config, logits_rows);
  return rows.n_bytes() + logits_rows.n_bytes();
}

Decoder::Decoder(const Model& model, Backend& backend, const ForwardLimits& limits, HiddenRows kept)
    : config_(model.config()),
      weights_(model.weights()),
      backend_(backend),
      limits_(limits),
      n_planes_(planes_of(config_, limits)),
      window_(config_.max_of(&LayerConfig::window)),
      kv_block_tokens_(model.kv_block_tokens()),
      kept_(std::move(kept)),
      workspace_(limits.max_rows, backend),
      logits_workspace_(limits.max_logits_rows, backend),
      body_(config_, model.ropes(), backend, workspace_),
      vector_head_(config_, weights_, backend, limits.max_logits_rows) {
  // Rows of a batch have one start each.
  IMP_CHECK(std::ranges::all_of(
      config_.layers, [this](const LayerConfig& layer) { return layer.window == 0 || layer.window == window_; }));
  rows_.declare(config_, kept_, workspace_, logits_workspace_);
  if (config_.has_head) logits_ = backend.make_rows(limits.max_logits_rows, config_.vocab_size);
  table_rows_.resize(static_cast<std::size_t>(limits.max_rows));
  if (kept_.are_kept) {
    every_row_.resize(static_cast<std::size_t>(limits.max_rows));
    std::iota(every_row_.begin(), every_row_.end(), 0);
  }
  WorkspaceNeeds needs = workspace_needs(config_, limits_);
  add_all_matrices(weights_, needs);
  backend_.reserve(needs);
}

KvGeometry Decoder::kv_geometry(int n_blocks, int n_state_slots) const {
  return imp::kv_geometry(config_, kv_block_tokens_, n_blocks, n_state_slots);
}

void Decoder::watch(AttentionWatch* watch) {
  IMP_CHECK(watch == nullptr || limits_.is_watched);
  body_.watch(watch);
}

void Decoder::check(const Batch& batch) const {
  IMP_CHECK(batch.tokens.size() <= static_cast<std::size_t>(limits_.max_rows));
  IMP_CHECK(batch.positions.size() == static_cast<std::size_t>(n_planes_) * batch.tokens.size());
  IMP_CHECK(batch.logits_rows.size() <= static_cast<std::size_t>(limits_.max_logits_rows));
  for (const PlacedRows& placed : batch.placed) {
    IMP_CHECK(limits_.takes_media && placed.from.width >= config_.media_width() && placed.first_row >= 0);
    IMP_CHECK(static_cast<std::size_t>(placed.first_row) + placed.rows.size() <= batch.tokens.size());
  }
  for (const SequenceRows& sequence : batch.sequences) {
    const bool may_see_ahead = limits_.takes_media || config_.is_two_sided;
    IMP_CHECK(sequence.ends.empty() || (may_see_ahead && std::ssize(sequence.ends) == sequence.n_rows));
    IMP_CHECK(!config_.is_two_sided || (sequence.first_position == 0 && !sequence.ends.empty()));
  }
  IMP_CHECK(config_.has_head || batch.logits_rows.empty());
  IMP_CHECK(config_.pooling != Pooling::none || batch.pooled.empty());
  IMP_CHECK(batch.types.empty() || batch.types.size() == batch.tokens.size());
  IMP_CHECK(std::ranges::all_of(batch.types, [&](std::int32_t type) {
    return type >= 0 && type < std::max(1, config_.text_embedding.n_token_types);
  }));
}

Rows Decoder::forward(const Batch& batch, KvPool& pool) {
  check(batch);
  backend_.run_step(batch, pool, *this);
  return first(logits_, batch.logits_rows.size());
}

Layer Decoder::layer_at(int layer) const {
  const auto i = static_cast<std::size_t>(layer);
  return {config_.layers[i], weights_.layers[i]};
}

void Decoder::run(const Batch& batch, KvPool& pool) {
  embed(batch);
  for (int i = 0; i < config_.n_layers; ++i) {
    const Layer layer = layer_at(i);
    keep_stream(i);
    layer.config.state == kNoState ? body_.attention(layer, batch, pool) : body_.linear_attention(layer, batch, pool);
    body_.feed_forward(layer);
    end_layer(i);
    if (i < config_.n_deepstack_layers) add_deepstack(i, batch);
  }
  keep_stream(config_.n_layers);
  if (kept_.are_kept && kept_.taps.empty()) keep_final_norm();
  if (config_.pooling != Pooling::none) vector_head_.compute(batch, body_.stream(), body_.normed());
  if (config_.has_head) compute_logits(batch);
}

void Decoder::keep_stream(int layer) {
  for (std::size_t i = 0; i < kept_.taps.size(); ++i) {
    if (kept_.taps[i] != layer) continue;
    const Rows stream = body_.stream();
    const std::span<const std::int32_t> rows = std::span(every_row_).first(static_cast<std::size_t>(stream.n_rows));
    backend_.gather_rows(stream, rows, columns(rows_.hidden, static_cast<int>(i) * stream.width, stream.width));
  }
}

// The head's rows are normalized apart from those with logits, so that these have the same bits with and without it.
void Decoder::keep_final_norm() {
  normalize(backend_, config_, body_.stream(), weights_.final_norm, nullptr, rows_.hidden);
}

void Decoder::embed(const Batch& batch) {
  workspace_.use(batch.tokens.size());
  body_.begin(batch.positions);
  backend_.embed(batch.tokens, *weights_.embedding, config_.embedding_scale, body_.stream());
  place_rows(batch);
  embed_places(batch);
  if (config_.layer_embedding.size > 0) embed_for_layers(batch);
  body_.normalize_for(layer_at(0));
}

// An encoding is not multiplied by the embedding's scale.
void Decoder::place_rows(const Batch& batch) {
  for (const PlacedRows& placed : batch.placed) {
    const Rows to = rows_from(body_.stream(), placed.first_row, placed.rows.size());
    backend_.gather_rows(columns(placed.from, 0, to.width), placed.rows, to);
  }
}

void Decoder::embed_places(const Batch& batch) {
  const TextEmbedding& text = config_.text_embedding;
  const std::size_t n = batch.tokens.size();
  if (text.n_token_types > 0) {
    std::fill_n(table_rows_.begin(), n, 0);
    std::ranges::copy(batch.types, table_rows_.begin());
    add_table_rows(*weights_.token_types);
  }
  if (text.position_rows > 0) {
    for (std::size_t i = 0; i < n; ++i) table_rows_[i] = batch.positions[i] + text.position_offset;
    add_table_rows(*weights_.positions);
  }
  if (text.is_normed) normalize(backend_, config_, body_.stream(), weights_.embedding_norm, nullptr, body_.stream());
}

// The branch is free here.
void Decoder::add_table_rows(const Linear& table) {
  const Rows stream = body_.stream(), added = body_.branch();
  backend_.embed(std::span(table_rows_).first(static_cast<std::size_t>(stream.n_rows)), table, 1, added);
  backend_.add(stream, added);
}

void Decoder::end_layer(int i) {
  if (config_.layer_embedding.size > 0) {
    backend_.add(body_.stream(), body_.branch());
    layer_embedding(i);
  }
  const Layer layer = layer_at(i);
  if (i + 1 == config_.n_layers) return body_.add_branch(layer, nullptr);
  const Layer next = layer_at(i + 1);
  body_.add_branch(layer, &next);
}

// The rows of media are normalized again by themselves, so that the others keep their bits. The branch is free here.
void Decoder::add_deepstack(int i, const Batch& batch) {
  const int hidden = config_.hidden_size;
  for (const PlacedRows& placed : batch.placed) {
    const std::size_t n_rows = placed.rows.size();
    const Rows added = rows_from(body_.branch(), placed.first_row, n_rows);
    backend_.gather_rows(columns(placed.from, (i + 1) * hidden, hidden), placed.rows, added);
    backend_.add(rows_from(body_.stream(), placed.first_row, n_rows), added);
    if (i + 1 < config_.n_layers) body_.normalize_again(layer_at(i + 1), placed.first_row, n_rows);
  }
}

void Decoder::compute_logits(const Batch& batch) {
  logits_workspace_.use(batch.logits_rows.size());
  const Rows last = rows_.last;
  const Rows logits = first(logits_, batch.logits_rows.size());
  backend_.gather_rows(body_.stream(), batch.logits_rows, last);
  normalize(backend_, config_, last, weights_.final_norm, &weights_.output_head(), last);
  backend_.linear(last, std::array{LinearTerm{&weights_.output_head(), nullptr, logits}});
  if (config_.logit_scale != 1) backend_.scale(logits, config_.logit_scale);
  if (config_.logit_soft_cap > 0) backend_.soft_cap(logits, config_.logit_soft_cap);
}

}  // namespace imp
