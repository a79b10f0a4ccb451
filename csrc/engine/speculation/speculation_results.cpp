// Evaluates the guesses of a completed step: how many were right, and what they cost.
#include <algorithm>
#include <utility>

#include "engine/speculation/speculation.h"

namespace imp {

bool Speculation::withdraw(StepPlan& plan) {
  bool had_guesses = false;
  for (PlannedRows& planned : plan.rows) {
    if (planned.n_guesses == 0) continue;
    Sequence& sequence = *planned.sequence;
    sequence.drop_guesses();
    state_.blocks.truncate(sequence.table, static_cast<int>(sequence.tokens.size()));
    planned.n_rows -= std::exchange(planned.n_guesses, 0);
    had_guesses = true;
  }
  plan.n_guess_rows = 0;
  return had_guesses;
}

void Speculation::observe(Step& step) {
  if (drafters_.empty()) return;
  for (StepRow& row : step.rows) {
    if (state_.find(row.id) == nullptr) row.planned.sequence = nullptr;
  }
  for (const std::unique_ptr<Drafter>& drafter : drafters_) drafter->observe(step);
}

void Speculation::read_cache(const KvPool& cache) {
  for (const std::unique_ptr<Drafter>& drafter : drafters_) drafter->read_cache(cache);
}

void Speculation::copy_blocks(std::span<const BlockCopy> copies) {
  for (const std::unique_ptr<Drafter>& drafter : drafters_) drafter->copy_blocks(copies);
}

void Speculation::forget(const Sequence& sequence) noexcept {
  for (const std::unique_ptr<Drafter>& drafter : drafters_) drafter->forget(sequence);
}

void Speculation::restart(Sequence& sequence) noexcept {
  forget(sequence);
  sequence.ngrams.clear();
  sequence.drafting.acceptance = {};
}

void Speculation::flush() {
  for (const std::unique_ptr<Drafter>& drafter : drafters_) drafter->flush();
}

// The sequence of the row if its run has not ended; otherwise null.
Sequence* Speculation::running_sequence(const StepRow& row) {
  Sequence* const found = state_.find(row.id);
  const bool is_there = found != nullptr && found == row.planned.sequence;
  return is_there && found->run && found->run->ticket == row.ticket ? found : nullptr;
}

// Also counts the guesses of sequences that have ended.
void Speculation::count(const Step& step) {
  if (drafters_.empty()) return;
  for (const StepRow& row : step.rows) {
    if (!row.planned.last) continue;
    Sequence* const sequence = running_sequence(row);
    if (row.planned.n_guesses == 0) {
      if (sequence != nullptr) DraftControl::add_single(sequence->drafting);
      continue;
    }
    const Round& round = rounds_[static_cast<std::size_t>(row.planned.round)];
    const std::span<const Guess> guesses = round.guesses;
    DraftHistory unused;
    // If the run ended within the round, it is unknown whether the guesses after the end are right.
    if (sequence == nullptr) {
      control_.add_round(unused, row.planned.drafter, guesses.first(static_cast<std::size_t>(row.n_right)),
                         row.n_right);
      continue;
    }
    control_.add_round(sequence->drafting, row.planned.drafter, guesses, row.n_right);
    if (sequence->run->constrained) control_.add_answered(sequence->drafting, row.n_right);
  }
}

void Speculation::learn(const Step& step, std::int64_t step_ns) {
  if (drafters_.empty()) return;
  const std::int64_t draft_ns = std::exchange(draft_ns_, 0);
  state_.stats.draft_ns += draft_ns;
  if (step.n_decode_rows == 0) return control_.costs().add_prompt(step.n_prefill_rows, static_cast<double>(step_ns));
  StepShape shape{.n_outputs = step.n_decode_rows, .n_rows = step.n_decode_rows + step.n_prefill_rows};
  int n_right = 0;
  for (const StepRow& row : step.rows) {
    shape.n_held += row.first_position;
    n_right += row.n_right;
  }
  control_.add_step(shape, step.n_guess_rows, n_right,
                    {.work_ns = static_cast<double>(step_ns - draft_ns),
                     .draft_ns = static_cast<double>(draft_ns),
                     .is_held_back = step.is_held_back});
  charge(step);
}

void Speculation::charge(const Step& step) {
  for (const StepRow& row : step.rows) {
    Sequence* const sequence = row.planned.last ? running_sequence(row) : nullptr;
    if (sequence == nullptr) continue;
    const auto drafter = static_cast<std::size_t>(row.planned.drafter);
    const bool is_made = row.planned.n_guesses > 0 && drafter < drafters_.size();
    control_.charge(sequence->drafting, row.planned.n_guesses, row.n_right,
                    is_made ? drafters_[drafter]->cost_of_token() : 0);
  }
}

bool Speculation::may_follow(const Step& step) const noexcept {
  if (drafters_.empty()) return false;
  // Without a recent baseline, the next step runs without guesses to measure it. So it need not wait.
  if (!state_.options.fixed_depth && !control_.costs().is_known(step.n_decode_rows)) return false;
  return std::ranges::any_of(
      step.rows, [this](const StepRow& row) { return row.planned.last && may_draft_next(*row.planned.sequence); });
}

// Whether the sequence may get guesses in the next step, which then cannot begin before this one ends. A sequence
// without a round for kPeriod outputs is considered only every kPeriod outputs.
bool Speculation::may_draft_next(const Sequence& sequence) const noexcept {
  constexpr int kPeriod = 16;
  if (!sequence.run->started || skip_reason(sequence) || n_wanted(sequence) <= 1) return false;
  const int n_since_round = sequence.drafting.n_since_round;
  return state_.options.fixed_depth || n_since_round < kPeriod || n_since_round % kPeriod == 0;
}

}  // namespace imp
