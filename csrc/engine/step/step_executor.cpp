// Builds the ragged batch of a step and samples from its logits.
#include "engine/step/step_executor.h"

#include <algorithm>
#include <string>
#include <utility>

#include "backend/batch.h"
#include "base/error.h"
#include "engine/step/drawing.h"
#include "engine/step/position_planes.h"
#include "engine/step/window_starts.h"

namespace imp {
namespace {

bool wants_row(const Run& run) {
  return run.returns.logits || run.returns.n_candidates > 0;
}

// Results that need the host: logits rows, vectors, or candidates if nothing is drawn.
bool wants_more(const Draw& draw) {
  const RunReturns& returns = draw.sequence->run->returns;
  return returns.logits || returns.vector || (!draw.is_drawn() && !draw.candidates.empty());
}

// placeholder: the token that is reported of a cell of a medium.
void add_score(Sequence& sequence, int position, int logits_row, std::int32_t placeholder, Step& step) {
  Score& score = step.scores.emplace_back();
  score.sequence = &sequence;
  const std::int32_t token = sequence.tokens[static_cast<std::size_t>(position)];
  score.token = is_media(token) ? placeholder : token;
  score.logits_row = logits_row;
  if (logits_row >= 0) score.candidates.resize(static_cast<std::size_t>(sequence.run->returns.n_score_candidates));
}

// n_behind: guesses of the sequence after the row.
void add_draws(const PlannedRows& planned, int n_behind, int logits_row, Step& step) {
  const std::vector<std::int32_t>& tokens = planned.sequence->tokens;
  const auto add = [&](Sequence* sequence) {
    Draw& draw = step.draws.emplace_back();
    draw.sequence = sequence;
    draw.logits_row = logits_row;
    draw.n_guesses_before = planned.n_guesses - n_behind;
    if (n_behind > 0) draw.guess = tokens[tokens.size() - static_cast<std::size_t>(n_behind)];
  };
  add(planned.sequence);
  for (Sequence* sibling : planned.sequence->run->siblings) add(sibling);
}

}  // namespace

StepExecutor::StepExecutor(Backend& backend, ForwardPass& forward, StateSaves& states, const KvBlocks& blocks,
                           const StepLimits& limits, TokenMask suppressed, const Clock& clock, MediaEncodings* media)
    : backend_(backend),
      forward_(forward),
      states_(states),
      clock_(clock),
      media_(media),
      pool_(backend.make_kv_pool(forward.kv_geometry(blocks.allocator().n_blocks(), blocks.states().n_slots()))),
      suppressed_(std::move(suppressed)),
      vectors_(forward.pooling(), static_cast<std::size_t>(limits.max_rows),
               static_cast<std::size_t>(limits.max_running)) {
  const auto max_rows = static_cast<std::size_t>(limits.max_rows);
  tokens_.reserve(max_rows);
  positions_.reserve(max_rows * static_cast<std::size_t>(forward.n_planes()));
  sequences_.reserve(static_cast<std::size_t>(limits.max_running));
  of_sequences_.reserve(static_cast<std::size_t>(limits.max_running));
  if (forward.window() > 0) starts_.reserve(max_rows);
  if (media_ != nullptr && media_->is_on()) {
    placed_.reserve(max_rows);
    ends_.reserve(max_rows);
  }
  logits_rows_.reserve(static_cast<std::size_t>(limits.max_logits_rows));
  prepare();
}

// Every row is the first token of a sequence and has logits. All write the same values to block 0, which no sequence
// holds yet. Sequences with a recurrent state cannot share what they write, and no backend that prepares batches has
// such layers.
void StepExecutor::prepare() {
  if (pool_->geometry().state.n_layers > 0 || vocab_size() == 0) return;
  const ForwardLimits& most = forward_.limits();
  const std::int32_t block = 0;
  for (const int n : backend_.batches_to_prepare()) {
    if (n > most.max_rows || n > most.max_logits_rows || pool_->geometry().n_blocks == 0) continue;
    tokens_.assign(static_cast<std::size_t>(n), 0);
    positions_.assign(static_cast<std::size_t>(n * forward_.n_planes()), 0);
    sequences_.clear();
    logits_rows_.clear();
    for (int row = 0; row < n; ++row) {
      sequences_.push_back({.first_row = row, .n_rows = 1, .first_position = 0, .blocks = {&block, 1}});
      logits_rows_.push_back(row);
    }
    for (int i = 0; i < 2; ++i) run_forward();
  }
  forward_ns_ = 0;  // warm-up does not count
}

void StepExecutor::copy_blocks(std::vector<BlockCopy>& copies) {
  std::size_t n_made = 0;
  try {
    for (; n_made < copies.size(); ++n_made) backend_.copy_block(*pool_, copies[n_made].from, copies[n_made].to);
  } catch (...) {
    copies.erase(copies.begin(), copies.begin() + static_cast<std::ptrdiff_t>(n_made));
    throw;
  }
  copies.clear();
}

void StepExecutor::begin(std::span<const PlannedRows> rows, Step& step) {
  step.clear();
  try {
    run(rows, step);
  } catch (...) {
    states_.release_all(step);
    throw;
  }
}

void StepExecutor::run(std::span<const PlannedRows> rows, Step& step) {
  build_batch(rows, step);
  step.forward = run_forward();
  score(step);
  sample(step);
  read_rows(step);
  vectors_.read(backend_, forward_, step);
}

void StepExecutor::build_batch(std::span<const PlannedRows> rows, Step& step) {
  tokens_.clear();
  positions_.clear();
  sequences_.clear();
  logits_rows_.clear();
  placed_.clear();
  ends_.clear();
  of_sequences_.clear();
  vectors_.clear();
  for (const PlannedRows& planned : rows) add_rows(planned, step);
  vectors_.end_batch(tokens_.size());
  add_planes(forward_.n_planes(), sequences_, of_sequences_, positions_);
  if (forward_.window() > 0) set_starts(forward_.window(), sequences_, of_sequences_, starts_);
  states_.take(step);
  for (std::size_t i = 0; i < sequences_.size(); ++i) sequences_[i].state_saves = step.rows[i].saves;
}

void StepExecutor::add_rows(const PlannedRows& planned, Step& step) {
  Sequence& sequence = *planned.sequence;
  const Run& run = *sequence.run;
  const std::size_t n_draws = step.draws.size();
  sequences_.push_back({.first_row = static_cast<int>(tokens_.size()),
                        .n_rows = planned.n_rows,
                        .first_position = sequence.held,
                        .blocks = sequence.table.blocks,
                        .state = sequence.table.state});
  of_sequences_.push_back(&sequence);
  IMP_CHECK(sequence.table.state == kNoSlot || sequence.table.state_tokens == sequence.held);
  // Tokens that the sequence held before have no score, even if they are evaluated again for the recurrent state.
  const bool scored = run.returns.scores && !run.started;
  const int first_scored = std::max({run.before.held, run.returns.first_score, 1});
  const std::int32_t placeholder = media_ != nullptr && media_->is_on() ? media_->facts().placeholder : 0;
  if (scored && sequence.held == 0 && run.before.held == 0 && run.returns.first_score == 0)
    add_score(sequence, 0, -1, placeholder, step);
  for (int i = 0; i < planned.n_rows; ++i) {
    const int cell = sequence.held + i;
    const auto row = static_cast<std::int32_t>(tokens_.size());
    tokens_.push_back(sequence.tokens[static_cast<std::size_t>(cell)]);
    positions_.push_back(sequence.position_of(cell, 0));
    const int n_behind = planned.n_rows - 1 - i;
    const bool draws = planned.last && n_behind <= planned.n_guesses;
    const bool drawn = draws && (run.limits.max_outputs != 0 || wants_row(run));
    const int next = cell + 1;
    const bool reports_next = scored && next >= first_scored && next < static_cast<int>(sequence.tokens.size());
    const bool scores_next = reports_next && !is_media(sequence.tokens[static_cast<std::size_t>(next)]);
    const auto logits_row = static_cast<int>(logits_rows_.size());
    if (drawn || scores_next) logits_rows_.push_back(row);
    if (reports_next) add_score(sequence, next, scores_next ? logits_row : -1, placeholder, step);
    if (draws) add_draws(planned, n_behind, drawn ? logits_row : -1, step);
  }
  if (!sequence.is_text_from(sequence.held))
    place_media(planned, tokens_.size() - static_cast<std::size_t>(planned.n_rows));
  if (run.returns.vector) vectors_.add(planned, sequences_.size() - 1, sequences_.back());
  step.rows.push_back({.planned = planned,
                       .id = sequence.id,
                       .ticket = run.ticket,
                       .first_position = sequence.held,
                       .first_row = sequences_.back().first_row,
                       .n_draws = static_cast<int>(step.draws.size() - n_draws)});
}

// The cells of media get a token, the rows of their encodings, and their ends if they see each other.
void StepExecutor::place_media(const PlannedRows& planned, std::size_t first_row) {
  const Sequence& sequence = *planned.sequence;
  const int end = sequence.held + planned.n_rows;
  const std::size_t n_ends = ends_.size();
  for (const MediaSpan& span : sequence.media.from(sequence.held)) {
    const int first = std::max(span.first, sequence.held), last = std::min(span.end(), end);
    if (first >= last) break;
    const auto row = first_row + static_cast<std::size_t>(first - sequence.held);
    const auto n_rows = static_cast<std::size_t>(last - first);
    std::fill_n(tokens_.begin() + static_cast<std::ptrdiff_t>(row), n_rows, media_->facts().row_token);
    const auto rows = media_->rows(sequence, span).subspan(static_cast<std::size_t>(first - span.first), n_rows);
    placed_.push_back({.first_row = static_cast<int>(row), .from = media_->arena(), .rows = rows});
    if (!span.is_atomic) continue;
    IMP_CHECK(last == span.end());
    for (int cell = sequence.held + static_cast<int>(ends_.size() - n_ends); cell < first; ++cell) {
      ends_.push_back(cell + 1);
    }
    ends_.insert(ends_.end(), n_rows, last);
  }
  if (ends_.size() == n_ends) return;
  for (int cell = sequence.held + static_cast<int>(ends_.size() - n_ends); cell < end; ++cell)
    ends_.push_back(cell + 1);
  sequences_.back().ends = std::span(ends_).subspan(n_ends);
}

Interval StepExecutor::run_forward() {
  const std::int64_t begin = clock_();
  logits_ = forward_.forward(
      {tokens_, positions_, sequences_, logits_rows_, placed_, vectors_.types(), vectors_.pooled()}, *pool_);
  const Interval ran = {begin, clock_()};
  forward_ns_ += ran.end_ns - begin;
  const auto n_rows = static_cast<int>(logits_rows_.size());
  if (n_rows > 0 && (logits_.n_rows != n_rows || logits_.width != vocab_size())) {
    throw InternalError(Reason::BUG, "the forward pass returned logits [" + std::to_string(logits_.n_rows) + ", " +
                                         std::to_string(logits_.width) + "], expected [" + std::to_string(n_rows) +
                                         ", " + std::to_string(vocab_size()) + "]");
  }
  return ran;
}

void StepExecutor::score(Step& step) {
  score_requests_.clear();
  for (Score& score : step.scores) {
    // The first token of a sequence has no score.
    if (score.logits_row >= 0) score_requests_.push_back({score.logits_row, score.token, score.candidates});
  }
  if (score_requests_.empty()) return;
  score_results_.assign(score_requests_.size(), {});
  backend_.score(logits_, score_requests_, score_results_);
  std::size_t next = 0;
  for (Score& score : step.scores) {
    if (score.logits_row >= 0) score.result = score_results_[next++];
  }
}

void StepExecutor::add_requests(Step& step) const {
  for (Draw& draw : step.draws) {
    const Run& run = *draw.sequence->run;
    const OutputMask* mask = run.constrained ? run.mask(run.n_outputs + draw.n_guesses_before) : nullptr;
    if (draw.logits_row >= 0) draw.candidates.resize(static_cast<std::size_t>(run.returns.n_candidates));
    if (run.limits.max_outputs == 0 || (mask != nullptr && mask->end)) continue;
    draw.request = static_cast<int>(step.requests.size());
    step.requests.push_back(request(draw, mask));
  }
  step.results.assign(step.requests.size(), {});
}

// If nothing is drawn, the candidates come from a score request for an arbitrary token.
void StepExecutor::sample(Step& step) {
  add_requests(step);
  if (!step.requests.empty()) {
    const std::int64_t begin = clock_();
    step.is_in_flight = backend_.runs_ahead() && step.scores.empty() && std::ranges::none_of(step.draws, wants_more) &&
                        backend_.begin_sample(logits_, step.requests);
    if (!step.is_in_flight) draw_tokens(backend_, logits_, step.requests, step.results);
    step.sample = {begin, clock_()};
    sample_ns_ += step.sample.end_ns - begin;
  }
  if (step.is_in_flight) return;
  assign_results(step);
  for (Draw& draw : step.draws) {
    if (draw.is_drawn() || draw.candidates.empty()) continue;
    const ScoreRequest request{draw.logits_row, 0, draw.candidates};
    backend_.score(logits_, {&request, 1}, {&draw.result, 1});
  }
}

void StepExecutor::finish(Step& step) {
  if (!step.is_in_flight) return;
  const std::int64_t begin = clock_();
  try {
    backend_.finish_sample(step.requests, step.results);
  } catch (...) {
    states_.release_all(step);
    throw;
  }
  step.is_in_flight = false;
  assign_results(step);
  step.sample.end_ns = clock_();
  sample_ns_ += step.sample.end_ns - begin;
}

SampleRequest StepExecutor::request(Draw& draw, const OutputMask* mask) const {
  const Sequence& sequence = *draw.sequence;
  const Run& run = *sequence.run;
  // A sibling reads its leader's prompt until the prompt is copied to it.
  const Sequence& prompt = run.leader != nullptr ? *run.leader : sequence;
  const std::span<const std::int32_t> history = prompt.history();
  const std::size_t n_known = history.size() - static_cast<std::size_t>(prompt.n_guesses - draw.n_guesses_before);
  SampleRequest request = request_after(history.first(n_known), sequence, draw.logits_row);
  request.masks = {bits(suppressed_), run.n_outputs == 0 ? bits(run.allowed) : nullptr,
                   mask != nullptr ? bits(mask->allowed) : nullptr};
  request.logprob = run.returns.logprobs;
  request.candidates = draw.candidates;
  return request;
}

void StepExecutor::read_rows(Step& step) {
  for (Draw& draw : step.draws) {
    if (draw.logits_row < 0 || !draw.sequence->run->returns.logits) continue;
    draw.logits.resize(static_cast<std::size_t>(vocab_size()));
    backend_.read_row(logits_, draw.logits_row, draw.logits);
  }
}

}  // namespace imp
