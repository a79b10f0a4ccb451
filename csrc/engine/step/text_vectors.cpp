// Rows of texts in a batch: their types, their ends, and the vectors that are read back.
#include "engine/step/text_vectors.h"

#include <string>

#include "base/error.h"
#include "engine/sequence/sequence.h"
#include "engine/step/finish_vector.h"

namespace imp {

TextVectors::TextVectors(const PoolingFacts& facts, std::size_t max_rows, std::size_t max_sequences) : facts_(facts) {
  if (facts.pooling == Pooling::none) return;
  pooled_.reserve(max_sequences);
  if (facts.n_token_types > 1) types_.reserve(max_rows);
  if (facts.sees_all) ends_.reserve(max_rows);
}

void TextVectors::clear() noexcept {
  types_.clear();
  pooled_.clear();
  ends_.clear();
}

void TextVectors::add(const PlannedRows& planned, std::size_t index, SequenceRows& rows) {
  const Sequence& sequence = *planned.sequence;
  const auto first_row = static_cast<std::size_t>(rows.first_row);
  const auto n_rows = static_cast<std::size_t>(rows.n_rows);
  IMP_CHECK(!facts_.needs_whole_texts || (planned.last && sequence.held == 0));
  if (planned.last) pooled_.push_back(static_cast<std::int32_t>(index));
  if (facts_.sees_all) {
    const std::size_t n_before = ends_.size();
    ends_.insert(ends_.end(), n_rows, rows.n_rows);
    rows.ends = std::span(ends_).subspan(n_before);
  }
  const std::int32_t second = sequence.run->second_text;
  if (second < 0) return;
  types_.resize(first_row, 0);
  for (int i = 0; i < rows.n_rows; ++i) types_.push_back(rows.first_position + i >= second ? 1 : 0);
}

void TextVectors::end_batch(std::size_t n_rows) {
  if (!types_.empty()) types_.resize(n_rows, 0);
}

void TextVectors::read(Backend& backend, const ForwardPass& forward, Step& step) const {
  if (pooled_.empty()) return;
  const Rows rows = forward.pooled();
  if (rows.n_rows != static_cast<int>(pooled_.size()) || rows.width != facts_.width) {
    throw InternalError(Reason::BUG, "the forward pass returned vectors [" + std::to_string(rows.n_rows) + ", " +
                                         std::to_string(rows.width) + "], expected [" + std::to_string(pooled_.size()) +
                                         ", " + std::to_string(facts_.width) + "]");
  }
  int next = 0;
  for (Draw& draw : step.draws) {
    const std::optional<VectorRequest>& request = draw.sequence->run->returns.vector;
    if (!request) continue;
    draw.vector.resize(static_cast<std::size_t>(facts_.width));
    backend.read_row(rows, next++, draw.vector);
    if (!finish_vector(*request, draw.vector)) draw.result.status = SampleStatus::non_finite;
  }
}

}  // namespace imp
