// Joins embedding and hidden row, and runs the layer.
#include "model/layer_head.h"

#include <array>
#include <cstddef>

#include "base/error.h"
#include "model/config/rope.h"
#include "model/layer/backend_needs.h"
#include "model/layer/row_views.h"

namespace imp {
namespace {

// Whether the residual stream of the layer is the head's own hidden row as it is.
bool keeps_hidden_row(const HeadConfig& config) {
  return config.joins_for_attention && !config.residual_is_normed;
}

}  // namespace

void LayerHeadRows::declare(const HeadConfig& config, int target_vocab_size, Workspace& observed, Workspace& guessing) {
  const std::int64_t hidden = config.stack.hidden_size;
  observed.add(source, config.hidden_width());
  for (Rows* each : {&embedded, &residual}) observed.add(*each, hidden);
  if (!keeps_hidden_row(config)) observed.add(own, hidden);
  if (!config.joins_for_attention) observed.add(pair, 2 * hidden);
  observed.add(joined, config.attention_width());
  guessing.add(input, config.attention_width());
  if (!config.tensors.ids.empty()) guessing.add(own_logits, config.stack.vocab_size);
  guessing.add(logits, target_vocab_size);
}

LayerHead::LayerHead(const HeadModel& head, const Model& target, Backend& backend, const ForwardLimits& limits)
    : DraftHead(head, target, backend, limits),
      n_planes_(planes_of(target.config(), limits)),
      observed_(limits.max_rows, backend),
      guessing_(limits.max_logits_rows, backend),
      keys_(sizes(), head.ropes, backend, observed_, LayerParts::keys),
      body_(sizes(), head.ropes, backend, guessing_, LayerParts::queries) {
  rows_.declare(head.config, vocab_size(), observed_, guessing_);
  reserve();
}

std::optional<KvGeometry> LayerHead::kv_geometry(int n_blocks) const {
  return head_kv_geometry(head_.config, target_.kv_block_tokens(), n_blocks);
}

const Values& LayerHead::final_norm() const {
  return head_.weights.final_norm ? head_.weights.final_norm : target_.weights().final_norm.weight;
}

Rows LayerHead::own_rows() const {
  return keeps_hidden_row(head_.config) ? rows_.residual : rows_.own;
}

void LayerHead::begin(LayerBody& body, const Batch& batch, std::size_t n_rows) const {
  IMP_CHECK(batch.positions.size() == static_cast<std::size_t>(n_planes_) * n_rows);
  body.begin(batch.positions);
}

void LayerHead::observe(const Batch& batch, Rows hidden, std::span<const std::int32_t> from, KvPool* own) {
  IMP_CHECK(own != nullptr && from.size() == batch.tokens.size() && hidden.width == head_.config.hidden_width());
  observed_.use(batch.tokens.size());
  const Rows source = rows_.source;
  backend_.gather_rows(hidden, from, source);
  if (head_.config.taps.empty()) return join(batch, source, *own);
  if (head_.weights.tap_norm) backend_.rms_norm(source, norm(head_.weights.tap_norm), source);
  backend_.linear(source, std::array{LinearTerm{head_.weights.fuse.get(), nullptr, own_rows()}});
  join(batch, own_rows(), *own);
}

void LayerHead::observe_guesses(const Batch& batch, std::span<const std::int32_t> from, KvPool* own) {
  IMP_CHECK(own != nullptr && from.size() == batch.tokens.size());
  observed_.use(batch.tokens.size());
  backend_.gather_rows(next_, from, own_rows());
  join(batch, own_rows(), *own);
}

// Writes the residual stream, and K and V of the norms of embedding and own hidden row.
void LayerHead::join(const Batch& batch, Rows own, KvPool& pool) {
  const HeadConfig& config = head_.config;
  const HeadWeights& w = head_.weights;
  const int hidden = sizes().hidden_size;
  const Rows both = config.joins_for_attention ? rows_.joined : rows_.pair;
  const Rows embedding_half = columns(both, config.hidden_comes_first ? hidden : 0, hidden);
  const Rows hidden_half = columns(both, config.hidden_comes_first ? 0 : hidden, hidden);
  backend_.embed(batch.tokens, embedding(), target_.config().embedding_scale, rows_.embedded);
  backend_.rms_norm(rows_.embedded, norm(w.embedding_norm), embedding_half);
  backend_.rms_norm(own, norm(w.hidden_norm), hidden_half);
  if (!config.joins_for_attention) {
    backend_.linear(rows_.pair, std::array{LinearTerm{w.fuse.get(), nullptr, rows_.residual}});
    backend_.rms_norm(rows_.residual, norm(w.layers.front().attention_norm.weight), rows_.joined);
  } else if (config.residual_is_normed) {
    backend_.rms_norm(own, norm(w.hidden_norm), rows_.residual);
  }
  begin(keys_, batch, batch.tokens.size());
  keys_.append_keys(layer(), rows_.joined, batch, pool);
}

Rows LayerHead::guess(const Batch& batch, std::span<const std::int32_t> rows, const KvPool& pool) {
  guessing_.use(rows.size());
  begin(body_, batch, rows.size());
  backend_.gather_rows(rows_.residual, rows, body_.stream());
  backend_.gather_rows(rows_.joined, rows, rows_.input);
  body_.project_queries(layer(), rows_.input);
  body_.attend(layer(), batch, pool);
  body_.finish_attention(layer());
  body_.feed_forward(layer());
  body_.add_branch(layer(), nullptr);
  return logits();
}

Rows LayerHead::logits() {
  const ModelConfig& target = target_.config();
  const bool has_all_tokens = head_.weights.token_ids.empty();
  const Rows all = rows_.logits;
  const Rows own = has_all_tokens ? all : rows_.own_logits;
  backend_.rms_norm(body_.stream(), norm(final_norm(), &output_head()), body_.normed());
  backend_.linear(body_.normed(), std::array{LinearTerm{&output_head(), nullptr, own}});
  next_ = head_.config.feeds_back_normed ? body_.normed() : body_.stream();
  if (!has_all_tokens) backend_.spread_columns(own, head_.weights.token_ids, all);
  if (head_.weights.own_output_head) return all;
  if (target.logit_scale != 1) backend_.scale(all, target.logit_scale);
  if (target.logit_soft_cap > 0) backend_.soft_cap(all, target.logit_soft_cap);
  return all;
}

}  // namespace imp
