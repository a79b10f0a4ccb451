// Pooling, and the products behind it.
#include "model/vector_head.h"

#include <array>
#include <cstddef>

#include "model/layer/normalize.h"

namespace imp {

void VectorRows::declare(const ModelConfig& config, Workspace& texts) {
  if (config.pooling == Pooling::none) return;
  texts.add(pooled, config.hidden_size);
  projected.resize(config.projections.size());
  for (std::size_t i = 0; i < projected.size(); ++i) texts.add(projected[i], config.projections[i].size);
  if (config.pooling != Pooling::rank) return;
  if (config.score_head->has_dense) texts.add(dense, config.hidden_size);
  texts.add(score, 1);
}

VectorHead::VectorHead(const ModelConfig& config, const Weights& weights, Backend& backend, int max_texts)
    : config_(config), weights_(weights), backend_(backend), workspace_(max_texts, backend) {
  rows_.declare(config, workspace_);
  runs_.reserve(static_cast<std::size_t>(max_texts));
}

void VectorHead::compute(const Batch& batch, Rows stream, Rows free) {
  workspace_.use(batch.pooled.size());
  if (batch.pooled.empty()) return;
  runs_.clear();
  for (const std::int32_t i : batch.pooled) runs_.push_back(run_of(batch.sequences[static_cast<std::size_t>(i)]));
  pool(stream, free);
  project();
  if (config_.pooling == Pooling::rank) score();
}

RowRun VectorHead::run_of(const SequenceRows& sequence) const noexcept {
  switch (config_.pooling) {
    case Pooling::mean:
      return {sequence.first_row, sequence.n_rows};
    case Pooling::last:
      return {sequence.first_row + sequence.n_rows - 1, 1};
    default:
      return {sequence.first_row, 1};
  }
}

// The rows of a mean are normalized before they are added.
void VectorHead::pool(Rows stream, Rows free) {
  const bool norms_all = config_.has_final_norm && config_.pooling == Pooling::mean;
  if (norms_all) normalize(backend_, config_, stream, weights_.final_norm, nullptr, free);
  backend_.mean_rows(norms_all ? free : stream, runs_, rows_.pooled);
  if (!config_.has_final_norm || norms_all) return;
  normalize(backend_, config_, rows_.pooled, weights_.final_norm, nullptr, rows_.pooled);
}

void VectorHead::project() {
  Rows from = rows_.pooled;
  for (std::size_t i = 0; i < rows_.projected.size(); ++i) {
    const BiasedMatrix& w = weights_.projections[i];
    backend_.linear(from, std::array{LinearTerm{w.weight.get(), w.bias.get(), rows_.projected[i]}});
    if (const auto activation = config_.projections[i].activation) {
      backend_.activate(*activation, {}, rows_.projected[i]);
    }
    from = rows_.projected[i];
  }
}

void VectorHead::score() {
  const BiasedMatrix &dense = weights_.score_dense, &output = weights_.score_output;
  if (config_.score_head->has_dense) {
    backend_.linear(rows_.pooled, std::array{LinearTerm{dense.weight.get(), dense.bias.get(), rows_.dense}});
    backend_.activate(PlainActivation::tanh, {}, rows_.dense);
  }
  const Rows from = config_.score_head->has_dense ? rows_.dense : rows_.pooled;
  backend_.linear(from, std::array{LinearTerm{output.weight.get(), output.bias.get(), rows_.score}});
}

Rows VectorHead::result() const noexcept {
  if (config_.pooling == Pooling::rank) return rows_.score;
  return rows_.projected.empty() ? rows_.pooled : rows_.projected.back();
}

}  // namespace imp
