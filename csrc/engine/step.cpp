// The ragged batch, and what is drawn from its logits.
#include "engine/step.h"

#include <string>
#include <utility>

#include "base/error.h"

namespace imp {
namespace {

bool wants_row(const Run& run) {
  return run.returns.logits || run.returns.n_candidates > 0;
}

const std::uint32_t* bits(const TokenMask& mask) {
  return mask.empty() ? nullptr : mask.data();
}

}  // namespace

Step::Step(Backend& backend, ForwardPass& forward, int n_blocks, const StepLimits& limits, TokenMask suppressed,
           const Clock& clock)
    : backend_(backend),
      forward_(forward),
      clock_(clock),
      pool_(backend.make_kv_pool(forward.kv_geometry(n_blocks))),
      suppressed_(std::move(suppressed)) {
  const auto n_rows = static_cast<std::size_t>(limits.max_rows);
  const auto n_logits = static_cast<std::size_t>(limits.max_logits_rows);
  const auto n_sequences = static_cast<std::size_t>(limits.max_running);
  tokens_.reserve(n_rows);
  positions_.reserve(n_rows);
  sequences_.reserve(n_sequences);
  logits_rows_.reserve(n_logits);
  draws_.reserve(n_sequences);
  requests_.reserve(n_sequences);
  results_.reserve(n_sequences);
  prepare();
}

// All rows are the first token of a sequence, and write the same to block 0, which nobody holds yet.
void Step::prepare() {
  const ForwardLimits& most = forward_.limits();
  const std::int32_t block = 0;
  for (const int n : backend_.batches_to_prepare()) {
    if (n > most.max_rows || n > most.max_logits_rows || pool_->geometry().n_blocks == 0) continue;
    tokens_.assign(static_cast<std::size_t>(n), 0);
    positions_.assign(static_cast<std::size_t>(n), 0);
    sequences_.clear();
    logits_rows_.clear();
    for (int row = 0; row < n; ++row) {
      sequences_.push_back({.first_row = row, .n_rows = 1, .first_position = 0, .blocks = {&block, 1}});
      logits_rows_.push_back(row);
    }
    for (int step = 0; step < 2; ++step) run_forward();
  }
  forward_ns_ = 0;  // of steps that somebody asked for
  last_forward_ = {};
}

void Step::copy_blocks(std::vector<BlockCopy>& copies) {
  std::size_t n_made = 0;
  try {
    for (; n_made < copies.size(); ++n_made) backend_.copy_block(*pool_, copies[n_made].from, copies[n_made].to);
  } catch (...) {
    copies.erase(copies.begin(), copies.begin() + static_cast<std::ptrdiff_t>(n_made));
    throw;
  }
  copies.clear();
}

void Step::evaluate(std::span<const PlannedRows> rows) {
  last_forward_ = last_sample_ = {};
  build_batch(rows);
  run_forward();
  score();
  sample();
  read_rows();
}

void Step::build_batch(std::span<const PlannedRows> rows) {
  tokens_.clear();
  positions_.clear();
  sequences_.clear();
  logits_rows_.clear();
  draws_.clear();
  scores_.clear();
  for (const PlannedRows& planned : rows) add_rows(planned);
}

void Step::add_rows(const PlannedRows& planned) {
  Sequence& sequence = *planned.sequence;
  const Run& run = *sequence.run;
  sequences_.push_back({.first_row = static_cast<int>(tokens_.size()),
                        .n_rows = planned.n_rows,
                        .first_position = sequence.held,
                        .blocks = sequence.table.blocks});
  const bool scored = run.returns.scores && !run.started;
  if (scored && sequence.held == 0) add_score(sequence, 0, -1);
  for (int i = 0; i < planned.n_rows; ++i) {
    const int position = sequence.held + i;
    const auto row = static_cast<std::int32_t>(tokens_.size());
    tokens_.push_back(sequence.tokens[static_cast<std::size_t>(position)]);
    positions_.push_back(position);
    const bool last = planned.last && i + 1 == planned.n_rows;
    const bool drawn = last && (run.limits.max_outputs != 0 || wants_row(run));
    const bool scores_next = scored && position + 1 < static_cast<int>(sequence.tokens.size());
    const auto logits_row = static_cast<int>(logits_rows_.size());
    if (drawn || scores_next) logits_rows_.push_back(row);
    if (scores_next) add_score(sequence, position + 1, logits_row);
    if (last) add_draws(planned, drawn ? logits_row : -1);
  }
}

void Step::add_score(Sequence& sequence, int position, int logits_row) {
  scores_.emplace_back();
  Score& score = scores_.back();
  score.sequence = &sequence;
  score.token = sequence.tokens[static_cast<std::size_t>(position)];
  score.logits_row = logits_row;
  if (logits_row >= 0) score.candidates.resize(static_cast<std::size_t>(sequence.run->returns.n_score_candidates));
}

void Step::add_draws(const PlannedRows& planned, int logits_row) {
  const auto add = [this, logits_row](Sequence* sequence) {
    draws_.emplace_back();
    draws_.back().sequence = sequence;
    draws_.back().logits_row = logits_row;
  };
  add(planned.sequence);
  for (Sequence* sibling : planned.sequence->run->siblings) add(sibling);
}

void Step::run_forward() {
  const std::int64_t begin = clock_();
  logits_ = forward_.forward({tokens_, positions_, sequences_, logits_rows_}, *pool_);
  last_forward_ = {begin, clock_()};
  forward_ns_ += last_forward_.end_ns - begin;
  const auto n_rows = static_cast<int>(logits_rows_.size());
  if (n_rows > 0 && (logits_.n_rows != n_rows || logits_.width != vocab_size())) {
    throw InternalError(Reason::BUG, "the forward pass returned logits [" + std::to_string(logits_.n_rows) + ", " +
                                         std::to_string(logits_.width) + "], expected [" + std::to_string(n_rows) +
                                         ", " + std::to_string(vocab_size()) + "]");
  }
}

void Step::score() {
  score_requests_.clear();
  for (Score& score : scores_) {
    // The first token of a sequence has no score.
    if (score.logits_row >= 0) score_requests_.push_back({score.logits_row, score.token, score.candidates});
  }
  if (score_requests_.empty()) return;
  score_results_.assign(score_requests_.size(), {});
  backend_.score(logits_, score_requests_, score_results_);
  std::size_t next = 0;
  for (Score& score : scores_) {
    if (score.logits_row >= 0) score.result = score_results_[next++];
  }
}

// Where only the row is wanted, its most likely candidates come with the score of any token.
void Step::sample() {
  requests_.clear();
  for (Draw& draw : draws_) {
    const Run& run = *draw.sequence->run;
    const OutputMask* mask = run.constrained ? run.mask(run.n_outputs) : nullptr;
    draw.drawn = run.limits.max_outputs != 0 && (mask == nullptr || !mask->end);
    if (draw.logits_row >= 0) draw.candidates.resize(static_cast<std::size_t>(run.returns.n_candidates));
    if (draw.drawn) requests_.push_back(request(draw, mask));
  }
  results_.assign(requests_.size(), {});
  if (!requests_.empty()) {
    const std::int64_t begin = clock_();
    backend_.sample(logits_, requests_, results_);
    last_sample_ = {begin, clock_()};
    sample_ns_ += last_sample_.end_ns - begin;
  }
  std::size_t next = 0;
  for (Draw& draw : draws_) {
    if (draw.drawn) {
      draw.result = results_[next++];
    } else if (!draw.candidates.empty()) {
      const ScoreRequest request{draw.logits_row, 0, draw.candidates};
      backend_.score(logits_, {&request, 1}, {&draw.result, 1});
    }
  }
}

SampleRequest Step::request(Draw& draw, const OutputMask* mask) const {
  const Sequence& sequence = *draw.sequence;
  const Run& run = *sequence.run;
  // A sibling's prompt is its leader's until it has its own.
  const Sequence& prompt = run.leader != nullptr ? *run.leader : sequence;
  const auto n_output = static_cast<std::int32_t>(prompt.tokens.size()) - sequence.base;
  return {.logits_row = draw.logits_row,
          .params = &sequence.params,
          .history = prompt.tokens,
          .n_output = n_output,
          .sequence = sequence.stream,
          .index = static_cast<std::uint32_t>(n_output),
          .masks = {bits(suppressed_), run.n_outputs == 0 ? bits(run.allowed) : nullptr,
                    mask != nullptr ? bits(mask->allowed) : nullptr},
          .logprob = run.returns.logprobs,
          .candidates = draw.candidates};
}

void Step::read_rows() {
  for (Draw& draw : draws_) {
    if (draw.logits_row < 0 || !draw.sequence->run->returns.logits) continue;
    draw.logits.resize(static_cast<std::size_t>(vocab_size()));
    backend_.read_row(logits_, draw.logits_row, draw.logits);
  }
}

}  // namespace imp
