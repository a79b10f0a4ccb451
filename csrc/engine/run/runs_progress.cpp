// Applies a completed step to its runs: tokens held, outputs, ends.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "engine/run/runs.h"

namespace imp {
namespace {

bool contains(const std::vector<std::int32_t>& ascending, std::int32_t token) {
  return std::ranges::binary_search(ascending, token);
}

StateError no_candidate(const Sequence& sequence) {
  const std::string position = std::to_string(sequence.place_of(sequence.held));
  return {Reason::NO_CANDIDATE, "the masks leave no candidate at position " + position, {{"position", position}}};
}

InternalError non_finite(const Sequence& sequence) {
  const std::string position = std::to_string(sequence.place_of(sequence.held));
  const std::string what = sequence.run->returns.vector ? "vector of the text that ends at" : "logits at";
  return {Reason::NON_FINITE, "the " + what + " position " + position + " is not finite", {{"position", position}}};
}

}  // namespace

// The run has left the queue. A later preemption does not count it there again.
void Runs::on_scheduled(Sequence& sequence) {
  leave_queue(sequence);
  sequence.run->scheduled_ns = state_.now_ns;
  for (Sequence* sibling : sequence.run->siblings) sibling->run->scheduled_ns = state_.now_ns;
  state_.stats.n_cached_tokens += static_cast<std::uint64_t>(sequence.run->n_cached);
}

void Runs::leave_queue(Sequence& sequence) {
  Run& run = *sequence.run;
  if (run.n_queued > 0) state_.admission.run_left_queue(run.queue_tenant, run.n_queued, run.n_queued_tokens);
  run.n_queued = 0;
}

void Runs::complete(std::span<StepRow> rows, std::span<Draw> draws, std::span<Score> scores) {
  for (StepRow& row : rows) {
    Sequence& sequence = *row.planned.sequence;
    const std::span<Draw> drawn = draws.first(static_cast<std::size_t>(row.n_draws));
    draws = draws.subspan(drawn.size());
    if (row.planned.n_guesses > 0) {
      verify(row, drawn);
      continue;
    }
    hold(sequence, row.planned.n_rows);
    saves_.commit(row);
    if (!store_scores(scores, sequence)) {
      state_.blocks.forget(sequence.table);
      fail(sequence, failure_of(Reason::NON_FINITE, [&sequence] { return non_finite(sequence); }));
    } else if (row.planned.last) {
      on_evaluated(sequence, drawn);
    }
  }
}

// The sequence's next n_tokens are evaluated.
void Runs::hold(Sequence& sequence, int n_tokens) {
  sequence.held += n_tokens;
  const int n_shareable = std::min(sequence.held, sequence.n_shareable());
  state_.blocks.commit(sequence.table, sequence.scope,
                       std::span(sequence.tokens).first(static_cast<std::size_t>(n_shareable)));
}

void Runs::verify(StepRow& row, std::span<Draw> draws) {
  const int n_rows = verify_rows(row, draws);
  saves_.release_guessed(row, n_rows);
}

// Goes through the rows as if each were a step of its own, up to the first draw that is not the next guess, and returns
// how many count. What later rows wrote to the cache is beyond the tokens held.
int Runs::verify_rows(StepRow& row, std::span<Draw> draws) {
  Sequence& sequence = *row.planned.sequence;
  Run& run = *sequence.run;
  const auto drafter = static_cast<std::size_t>(row.planned.drafter);
  const std::array counts = {&run.drafts, &run.drafts_by_drafter[drafter], &state_.stats.drafts,
                             &state_.stats.drafters[drafter].counts};
  sequence.drop_guesses();
  for (DraftCounts* each : counts) {
    ++each->n_rounds;
    each->n_drafted += draws.size() - 1;
  }
  int n_rows = 0;
  for (Draw& draw : draws) {
    hold(sequence, 1);
    saves_.commit_guessed(row, ++n_rows);
    const bool is_guessed = draw.result.status == SampleStatus::ok && draw.result.token == draw.guess;
    if (draw.n_guesses_before > 0) {
      for (DraftCounts* each : counts) ++each->n_accepted;
      Scheduler::count_right_guess(sequence);
    }
    if (is_guessed) ++row.n_right;
    if (!deliver(draw)) return n_rows;
    if (!is_guessed) break;
  }
  state_.blocks.truncate(sequence.table, sequence.held);
  await_mask(sequence);
  return n_rows;
}

// The run continues after the last event, an output. Drops masks that assumed guesses; the next answer has them again.
void Runs::await_mask(Sequence& sequence) {
  Run& run = *sequence.run;
  if (run.may_ask) {
    run.masks.clear();
    run.given.tokens.clear();
    run.given.output = run.n_outputs;  // as if none were asked for, until Speculation asks
    run.given.taken_ns = -1;
  }
  if (run.constrained && run.mask(run.n_outputs) == nullptr) {
    std::get<TokenEvent>(state_.events.back()).awaits_mask = true;
  }
}

// Returns false if a score of the sequence is not finite.
bool Runs::store_scores(std::span<Score> scores, Sequence& sequence) {
  TokenScores& kept = sequence.run->scores;
  for (Score& score : scores) {
    if (score.sequence != &sequence) continue;
    if (score.result.status != SampleStatus::ok) return false;
    kept.tokens.push_back(score.token);
    kept.logprobs.push_back(score.logits_row < 0 ? std::numeric_limits<float>::quiet_NaN() : score.result.logprob);
    kept.candidates.push_back(std::move(score.candidates));
  }
  return true;
}

// All tokens of the sequence are held. If every first draw fails, the run never started and leaves no trace.
void Runs::on_evaluated(Sequence& sequence, std::span<Draw> draws) {
  const auto failed = [](const Draw& draw) { return draw.result.status != SampleStatus::ok; };
  if (!sequence.run->started) {
    if (std::ranges::all_of(draws, failed)) {
      deliver(draws.front());
      return;
    }
    start(sequence, draws.front());
  }
  for (Draw& draw : draws) {
    if (deliver(draw)) await_mask(*draw.sequence);
  }
}

void Runs::start(Sequence& sequence, Draw& draw) {
  Run& run = *sequence.run;
  run.started = true;
  StartedEvent event{.ticket = run.ticket,
                     .sequence = sequence.id,
                     .stream = sequence.stream,
                     .n_tokens = sequence.place_of(run.start) - run.before.held,
                     .n_cached_tokens = run.n_cached,
                     .scores = std::move(run.scores),
                     .candidates = {},
                     .logits = {},
                     .vector = std::move(draw.vector),
                     .sparse = run.sparse_report};
  if (!draw.is_drawn()) {
    event.candidates = std::move(draw.candidates);
    event.logits = std::move(draw.logits);
  }
  state_.events.emplace_back(std::move(event));
  for (Sequence* sibling : sequence.detach_siblings()) {
    state_.blocks.share(sequence.table, sequence.held, sibling->table);
    sibling->tokens.assign(sequence.tokens.begin(), sequence.tokens.end());  // a sparse prompt is shared already
    sibling->media.copy_from(sequence.media);
    sibling->held = sequence.held;
    sibling->run->started = true;
    sibling->run->encode_ns = run.encode_ns;
    state_.scheduler.join(*sibling);
  }
}

bool Runs::deliver(Draw& draw) {
  Sequence& sequence = *draw.sequence;
  Run& run = *sequence.run;
  switch (draw.result.status) {
    case SampleStatus::ok:
      break;
    case SampleStatus::non_finite:
      state_.blocks.forget(sequence.table);
      fail_step(sequence, failure_of(Reason::NON_FINITE, [&sequence] { return non_finite(sequence); }));
      return false;
    case SampleStatus::no_candidate:
      fail(sequence, failure_of(Reason::NO_CANDIDATE, [&sequence] { return no_candidate(sequence); }));
      return false;
  }
  if (!draw.is_drawn()) {
    finish(sequence, run.limits.max_outputs == 0 ? FinishReason::max_tokens : FinishReason::stop);
    return false;
  }
  const std::int32_t token = draw.result.token;
  const bool eos = contains(run.limits.eos_tokens, token);
  const bool stops = contains(run.limits.stop_tokens, token) || (eos && run.limits.ends_at_eos);
  if (stops && run.n_outputs >= run.limits.min_outputs) {
    report_finished(sequence, FinishReason::stop, &draw);
    close(sequence);
    return false;
  }
  append_output(sequence, draw, eos);
  return finish_if_done(sequence);
}

void Runs::append_output(Sequence& sequence, Draw& draw, bool eos) {
  Run& run = *sequence.run;
  run.last_output_ns = state_.now_ns;
  if (run.first_output_ns < 0) run.first_output_ns = state_.now_ns;
  state_.events.emplace_back(TokenEvent{.ticket = run.ticket,
                                        .sequence = sequence.id,
                                        .stream = sequence.stream,
                                        .output = run.n_outputs,
                                        .token = draw.result.token,
                                        .position = sequence.place_of(sequence.held),
                                        .eos = eos,
                                        .logprob = draw.result.logprob,
                                        .candidates = std::move(draw.candidates),
                                        .logits = std::move(draw.logits)});
  sequence.append(draw.result.token);
  run.count_output(draw.result.token);
  ++state_.stats.n_outputs;
}

// Ends a run that has its last output. Checks the conditions in order of precedence.
bool Runs::finish_if_done(Sequence& sequence) {
  const Run& run = *sequence.run;
  if (!run.started) return true;
  const OutputMask* mask = run.constrained ? run.mask(run.n_outputs) : nullptr;
  std::optional<FinishReason> reason;
  if (mask != nullptr && mask->end) {
    reason = FinishReason::stop;
  } else if (run.n_outputs == run.limits.max_outputs) {
    reason = FinishReason::max_tokens;
  } else if (static_cast<int>(sequence.history().size()) > state_.options.max_context) {
    reason = FinishReason::context_full;
  }
  if (reason) finish(sequence, *reason);
  return !reason;
}

}  // namespace imp
