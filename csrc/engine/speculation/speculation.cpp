// Plans the rows of guesses.
#include "engine/speculation/speculation.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "engine/speculation/ngram_drafter.h"
#include "engine/step_executor.h"

namespace imp {
namespace {

std::unique_ptr<Drafter> make_drafter(const std::string& name, std::size_t number) {
  if (name == NgramDrafter::kName) return std::make_unique<NgramDrafter>();
  throw FieldInvalid("drafters[" + std::to_string(number) + "]", name + ", expected ngram");
}

}  // namespace

Speculation::Speculation(EngineState& state, int max_logits_rows, Drafters drafters)
    : state_(state), max_logits_rows_(max_logits_rows), drafters_(state.drafters) {
  drafters_ = std::move(drafters);
  for (std::size_t i = 0; i < state.options.drafters.size(); ++i) {
    drafters_.push_back(make_drafter(state.options.drafters[i], i));
  }
  if (drafters_.empty()) return;
  const auto most = static_cast<std::size_t>(max_logits_rows);
  requests_.resize(most);
  for (DraftRequest& request : requests_) request.guesses.reserve(static_cast<std::size_t>(kLimits.draft_tokens));
  planned_.reserve(most);
}

// Drafters are asked in order. Each one sees only the sequences for which those before it had no guess.
void Speculation::extend(StepPlan& plan) {
  if (drafters_.empty()) return;
  planned_.clear();
  for (PlannedRows& planned : plan.rows) {
    if (planned.last && planned.n_rows == 1 && n_wanted(*planned.sequence) > 0) planned_.push_back(&planned);
  }
  if (planned_.empty()) return;
  n_state_slots_ = state_slots_of(plan);
  for (const std::unique_ptr<Drafter>& drafter : drafters_) {
    if (planned_.empty()) return;
    for (std::size_t i = 0; i < planned_.size(); ++i) {
      requests_[i].sequence = planned_[i]->sequence;
      requests_[i].n_wanted = n_wanted(*planned_[i]->sequence);
      requests_[i].guesses.clear();
    }
    const std::span<DraftRequest> requests = std::span(requests_).first(planned_.size());
    drafter->draft(requests);
    std::size_t n_unanswered = 0;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      if (requests[i].guesses.empty()) planned_[n_unanswered++] = planned_[i];
      append(*planned_[i], requests[i].guesses, plan);
    }
    planned_.resize(n_unanswered);
  }
}

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

void Speculation::flush() {
  for (const std::unique_ptr<Drafter>& drafter : drafters_) drafter->flush();
}

bool Speculation::may_follow(const Step& step) const noexcept {
  return !drafters_.empty() && std::ranges::any_of(step.rows, [this](const StepRow& row) {
    return row.planned.last && n_wanted(*row.planned.sequence) > 1;
  });
}

// The most guesses that the run can use now. The last output needs none: nothing follows it.
int Speculation::n_wanted(const Sequence& sequence) const noexcept {
  const Run& run = *sequence.run;
  if (!run.started || run.constrained) return 0;
  const int n_outputs_left =
      run.limits.max_outputs < 0 ? kLimits.draft_tokens : run.limits.max_outputs - run.n_outputs - 1;
  const int n_positions_left = state_.options.max_context - static_cast<int>(sequence.tokens.size());
  return std::min({run.max_draft_tokens, n_outputs_left, n_positions_left});
}

// Tokens that fit behind the sequence's own without evicting a block of the prefix cache.
int Speculation::n_writable(const Sequence& sequence) const noexcept {
  const KvBlocks& blocks = state_.blocks;
  const auto n_blocks = static_cast<int>(sequence.table.blocks.size()) + blocks.allocator().n_free();
  return n_blocks * blocks.block_tokens() - static_cast<int>(sequence.tokens.size());
}

// A sequence with a recurrent state saves it after each row, so a guess takes a slot for the time of the step. Guesses
// evict the snapshots in up to a quarter of the slots.
int Speculation::state_slots_of(const StepPlan& plan) {
  const StateSlots& states = state_.blocks.states();
  if (!states.is_used()) return max_logits_rows_;
  const int n_most = states.n_slots() / 4;
  const auto n_of_rows = static_cast<int>(plan.rows.size());
  return std::clamp(state_.blocks.make_states_free(n_of_rows + n_most) - n_of_rows, 0, n_most);
}

void Speculation::append(PlannedRows& planned, std::span<const Guess> guesses, StepPlan& plan) {
  Sequence& sequence = *planned.sequence;
  const int n = std::min({static_cast<int>(guesses.size()), state_.options.step_tokens - plan.n_rows(),
                          max_logits_rows_ - plan.n_logits_rows, n_writable(sequence), n_state_slots_});
  if (n <= 0) return;
  const auto end = static_cast<int>(sequence.tokens.size());
  for (const Guess& guess : guesses.first(static_cast<std::size_t>(n))) sequence.append_guess(guess.token);
  state_.blocks.prepare(sequence.table, end, end + n, copies_);
  IMP_CHECK(copies_.empty());  // the sequence writes its pending token, so its last block is its own
  planned.n_rows += n;
  planned.n_guesses = n;
  plan.n_guess_rows += n;
  plan.n_logits_rows += n;
  n_state_slots_ -= n;
  state_.scheduler.charge(sequence, n);
}

}  // namespace imp
