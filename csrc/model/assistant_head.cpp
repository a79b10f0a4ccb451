// Projects embedding and hidden row, and runs the layers.
#include "model/assistant_head.h"

#include <array>
#include <cstddef>

#include "base/error.h"
#include "model/layer/row_views.h"

namespace imp {

void AssistantRows::declare(const HeadConfig& config, int target_vocab_size, Workspace& observed, Workspace& guessing) {
  observed.add(pair, std::int64_t{2} * config.target_hidden);
  observed.add(stream, config.stack.hidden_size);
  if (config.clusters.n > 0) guessing.add(scores, config.clusters.n);
  guessing.add(logits, target_vocab_size);
  guessing.add(next, config.target_hidden);
}

AssistantHead::AssistantHead(const HeadModel& head, const Model& target, Backend& backend, const ForwardLimits& limits)
    : DraftHead(head, target, backend, limits),
      observed_(observed_rows(head.config, limits), backend),
      guessing_(limits.max_logits_rows, backend),
      body_(sizes(), head.ropes, backend, guessing_, LayerParts::queries) {
  rows_.declare(head.config, vocab_size(), observed_, guessing_);
  reserve();
}

void AssistantHead::observe(const Batch& batch, Rows hidden, std::span<const std::int32_t> from, KvPool* /*own*/) {
  const int width = head_.config.target_hidden;
  IMP_CHECK(from.size() == batch.tokens.size() && hidden.width == width);
  observed_.use(batch.tokens.size());
  backend_.embed(batch.tokens, embedding(), target_.config().embedding_scale, columns(rows_.pair, 0, width));
  backend_.gather_rows(hidden, from, columns(rows_.pair, width, width));
  backend_.linear(rows_.pair, std::array{LinearTerm{head_.weights.fuse.get(), nullptr, rows_.stream}});
}

void AssistantHead::observe_guesses(const Batch& batch, std::span<const std::int32_t> from, KvPool* own) {
  observe(batch, rows_.next, from, own);
}

Rows AssistantHead::guess(const Batch& batch, std::span<const std::int32_t> rows, const KvPool& pool) {
  IMP_CHECK(batch.positions.size() == rows.size());
  guessing_.use(rows.size());
  body_.begin(batch.positions);
  backend_.gather_rows(rows_.stream, rows, body_.stream());
  body_.normalize_for(layer_at(0));
  for (std::size_t i = 0; i < sizes().layers.size(); ++i) {
    const Layer layer = layer_at(i);
    body_.project_queries(layer, body_.normed());
    body_.attend(layer, batch, pool);
    body_.finish_attention(layer);
    body_.feed_forward(layer);
    if (i + 1 == sizes().layers.size()) {
      body_.add_branch(layer, nullptr);
    } else {
      const Layer next = layer_at(i + 1);
      body_.add_branch(layer, &next);
    }
  }
  backend_.rms_norm(body_.stream(), norm(head_.weights.final_norm), body_.normed());
  score();
  return rows_.logits;
}

// From the normed stream to the logits, and to the hidden rows of further guesses.
void AssistantHead::score() {
  const HeadWeights& w = head_.weights;
  const HeadClusters& clusters = head_.config.clusters;
  const Rows normed = body_.normed();
  const LinearTerm next = {w.feed_back.get(), nullptr, rows_.next};
  if (clusters.n == 0)
    return backend_.linear(normed, std::array{LinearTerm{&output_head(), nullptr, rows_.logits}, next});
  backend_.linear(normed, std::array{LinearTerm{w.centroids.get(), nullptr, rows_.scores}, next});
  backend_.clustered_product(normed, rows_.scores, clusters.n_used, w.token_ids, output_head(), rows_.logits);
}

}  // namespace imp
