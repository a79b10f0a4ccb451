// Plans the rows of guesses.
#include "engine/speculation/speculation.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/timing.h"
#include "engine/speculation/drafter_list.h"

namespace imp {
namespace {

const DrafterRow& row_of(std::string_view name, std::size_t number) {
  const auto* const found = std::ranges::find(kDrafters, name, &DrafterRow::name);
  if (found != std::end(kDrafters)) return *found;
  std::string known;
  for (const DrafterRow& row : kDrafters) known += (known.empty() ? "" : ", ") + std::string(row.name);
  throw FieldInvalid("drafters[" + std::to_string(number) + "]", std::string(name) + ", expected one of " + known);
}

}  // namespace

Speculation::Speculation(EngineState& state, int max_logits_rows, Drafters drafters, const Clock& clock)
    : state_(state), clock_(clock), max_logits_rows_(max_logits_rows), drafters_(std::move(drafters)) {
  for (std::size_t i = 0; i < state.options.drafters.size(); ++i) {
    const std::string& wanted = state.options.drafters[i];
    // A drafter that the caller gave has the place of the option of the same name.
    const auto given = std::ranges::find(drafters_, wanted, [](const auto& drafter) { return drafter->name(); });
    if (given != drafters_.end()) {
      std::rotate(given, given + 1, drafters_.end());
    } else if (const DrafterRow& row = row_of(wanted, i); row.make != nullptr) {
      drafters_.push_back(row.make());
    }
  }
  if (drafters_.empty()) return;
  IMP_CHECK(drafters_.size() < kMaxDrafters);  // and the grammar
  control_.reserve(max_logits_rows, kLimits.draft_tokens);
  for (std::size_t i = 0; i < drafters_.size(); ++i) {
    state.stats.drafters[i].name = drafters_[i]->name();
    for (int confidence = 0; confidence < Acceptance::kClasses; ++confidence) {
      control_.set_prior(static_cast<int>(i), confidence, drafters_[i]->prior(confidence));
    }
  }
  state.stats.drafters[drafters_.size()].name = "grammar";
  control_.set_prior(grammar(), 0, {.first = 0.9, .later = 0.95});
  const auto most = static_cast<std::size_t>(max_logits_rows);
  rounds_.resize(most);
  requests_.resize(most);
  for (Round& round : rounds_) round.guesses.reserve(static_cast<std::size_t>(kLimits.draft_tokens));
  for (DraftRequest& request : requests_) request.guesses.reserve(static_cast<std::size_t>(kLimits.draft_tokens));
  for (std::vector<Round*>* list : {&asked_, &weighed_}) list->reserve(most);
  options_.reserve(most);
}

bool Speculation::has_drafter(std::string_view name) const noexcept {
  return std::ranges::any_of(drafters_, [name](const auto& drafter) { return drafter->name() == name; });
}

void Speculation::extend(StepPlan& plan) {
  if (drafters_.empty()) return;
  const Timing timing(clock_, draft_ns_);
  find_rounds(plan);
  if (n_rounds_ == 0) return;
  n_state_slots_ = state_slots_of(plan);
  make_guesses(plan);
  for (std::size_t i = 0; i < n_rounds_; ++i) append(rounds_[i], plan);
}

void Speculation::find_rounds(StepPlan& plan) {
  n_rounds_ = 0;
  for (PlannedRows& planned : plan.rows) {
    if (!planned.last || planned.n_rows != 1) continue;
    Sequence& sequence = *planned.sequence;
    if (!sequence.run->started || sequence.run->max_draft_tokens == 0) continue;
    if (sequence.run->constrained) count_answer(sequence);
    if (const std::optional<DraftSkip> skip = skip_reason(sequence)) {
      count_skip(sequence, *skip);
      continue;
    }
    if (sequence.run->constrained && sequence.run->proposal.n_asked == 0 && n_wanted(sequence) > 0) {
      count_skip(sequence, DraftSkip::not_worth_it);
      continue;
    }
    Round& round = rounds_[n_rounds_];
    planned.round = static_cast<int>(n_rounds_++);
    round.planned = &planned;
    round.n_most = std::min(n_wanted(sequence), n_writable(sequence));
    round.drafter = -1;
    round.n_chosen = 0;
    round.guesses.clear();
    if (sequence.run->constrained) take_given(round);
  }
}

// Asks the drafters in order. Each one is asked only for the sequences that have no guesses yet. Before a drafter with
// a cost is asked, choose() decides how many guesses are worth that cost.
void Speculation::make_guesses(const StepPlan& plan) {
  bool is_chosen = false;
  for (std::size_t i = 0; i < drafters_.size(); ++i) {
    const bool is_costly = drafters_[i]->cost_of_token() > 0 && !state_.options.fixed_depth;
    if (is_costly) choose(plan, i);
    ask_drafter(i, is_costly);
    is_chosen = is_costly;
  }
  if (!is_chosen) choose(plan, std::nullopt);
}

void Speculation::ask_drafter(std::size_t drafter, bool is_costly) {
  asked_.clear();
  for (std::size_t i = 0; i < n_rounds_; ++i) {
    Round& round = rounds_[i];
    const Run& run = *round.planned->sequence->run;
    if (round.drafter >= 0 || run.constrained || !run.may_use(drafter)) continue;
    const int n_wanted = is_costly ? round.n_chosen : round.n_most;
    round.guesses.clear();
    if (n_wanted <= 0) continue;
    DraftRequest& request = requests_[asked_.size()];
    request.sequence = round.planned->sequence;
    request.n_wanted = n_wanted;
    request.guesses.clear();
    asked_.push_back(&round);
  }
  const std::span<DraftRequest> requests = std::span(requests_).first(asked_.size());
  if (requests.empty()) return;
  drafters_[drafter]->draft(requests);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    Round& round = *asked_[i];
    std::swap(round.guesses, requests[i].guesses);
    if (!round.guesses.empty()) round.drafter = static_cast<int>(drafter);
    round.n_chosen = std::min(round.n_chosen, static_cast<int>(round.guesses.size()));
  }
}

// Sets n_chosen of each round that has guesses. With a costly drafter, also of each round for which it can make some.
void Speculation::choose(const StepPlan& plan, std::optional<std::size_t> costly_drafter) {
  weighed_.clear();
  options_.clear();
  for (std::size_t i = 0; i < n_rounds_; ++i) {
    Round& round = rounds_[i];
    const bool is_made = round.drafter >= 0;
    const Run& run = *round.planned->sequence->run;
    const bool can_be_made = costly_drafter && !run.constrained && run.may_use(*costly_drafter);
    if (round.n_most <= 0 || (!is_made && !can_be_made)) continue;
    if (!is_made) round.guesses.resize(static_cast<std::size_t>(round.n_most));
    const auto drafter = is_made ? static_cast<std::size_t>(round.drafter) : *costly_drafter;
    if (state_.options.fixed_depth) {
      round.n_chosen = static_cast<int>(round.guesses.size());
      continue;
    }
    weighed_.push_back(&round);
    Sequence& sequence = *round.planned->sequence;
    DraftOption& option = options_.emplace_back();
    option = {.history = &sequence.drafting, .drafter = static_cast<int>(drafter), .guesses = round.guesses};
    if (is_made) continue;
    option.guess_cost = drafters_[drafter]->cost_of_token();
    option.start_cost = drafters_[drafter]->start_cost(sequence);
    option.n_had = sequence.run->n_outputs;
    option.n_ahead = std::min(n_outputs_left(sequence), std::max(DraftControl::kMinAhead, option.n_had));
  }
  if (options_.empty()) return;
  control_.choose(options_, shape_of(plan));
  for (std::size_t i = 0; i < options_.size(); ++i) weighed_[i]->n_chosen = options_[i].n_chosen;
}

StepShape Speculation::shape_of(const StepPlan& plan) const {
  double n_held = 0;
  for (const PlannedRows& planned : plan.rows) n_held += planned.sequence->held;
  return {.n_outputs = plan.n_decode_rows, .n_rows = plan.n_rows(), .n_held = n_held, .n_free = n_free(plan)};
}

// The number of guesses that fit in the step.
int Speculation::n_free(const StepPlan& plan) const noexcept {
  return std::min({state_.options.step_tokens - plan.n_rows(), max_logits_rows_ - plan.n_logits_rows, n_state_slots_});
}

void Speculation::append(Round& round, StepPlan& plan) {
  PlannedRows& planned = *round.planned;
  Sequence& sequence = *planned.sequence;
  const int n_most = std::min(n_free(plan), n_writable(sequence));
  const int n = std::min(round.n_chosen, n_most);
  if (n <= 0) {
    const bool has_room = round.n_most > 0 && n_most > 0;
    return count_skip(sequence, !has_room               ? DraftSkip::no_room
                                : round.guesses.empty() ? DraftSkip::no_guess
                                                        : DraftSkip::not_worth_it);
  }
  const auto end = static_cast<int>(sequence.tokens.size());
  round.guesses.resize(static_cast<std::size_t>(n));
  for (const Guess& guess : round.guesses) sequence.append_guess(guess.token);
  state_.blocks.prepare(sequence.table, end, end + n, copies_);
  IMP_CHECK(copies_.empty());  // the sequence writes its pending token, so its last block is its own
  planned.n_rows += n;
  planned.n_guesses = n;
  planned.drafter = round.drafter;
  plan.n_guess_rows += n;
  plan.n_logits_rows += n;
  n_state_slots_ -= n;
  state_.scheduler.charge(sequence, n);
}

void Speculation::count_skip(Sequence& sequence, DraftSkip skip) noexcept {
  ++sequence.run->draft_skips[static_cast<std::size_t>(skip)];
  ++state_.stats.draft_skips[static_cast<std::size_t>(skip)];
}

// Guesses follow the first draw of a run, and only its tokens before that may be media. So the first condition never
// holds; it is asked all the same, because a wrong answer would be a cell among the guesses.
std::optional<DraftSkip> Speculation::skip_reason(const Sequence& sequence) const noexcept {
  const bool may_draft = sequence.media.empty() || state_.options.draft_with_media;
  if (!sequence.is_text_from(sequence.held) || !may_draft) return DraftSkip::media;
  if (sequence.drafting.backoff_left > 0) return DraftSkip::not_worth_it;
  if (state_.options.fixed_depth || control_.may_draft(sequence.drafting)) return std::nullopt;
  return DraftSkip::not_worth_it;
}

// The number of outputs that the run may have after its next one.
int Speculation::n_outputs_left(const Sequence& sequence) const noexcept {
  const Run& run = *sequence.run;
  const int n_positions = state_.options.max_context - static_cast<int>(sequence.history().size());
  return run.limits.max_outputs < 0 ? n_positions : std::min(n_positions, run.limits.max_outputs - run.n_outputs - 1);
}

// The maximum number of guesses that the run can use now. The last output needs none, because nothing follows it.
int Speculation::n_wanted(const Sequence& sequence) const noexcept {
  const Run& run = *sequence.run;
  const int most = run.constrained ? kLimits.constrained_draft_tokens : kLimits.draft_tokens;
  return std::max(0, std::min({most, run.max_draft_tokens, n_outputs_left(sequence)}));
}

// The number of tokens that fit after the sequence's tokens without evicting a block of the prefix cache.
int Speculation::n_writable(const Sequence& sequence) const noexcept {
  const KvBlocks& blocks = state_.blocks;
  const auto n_blocks = static_cast<int>(sequence.table.blocks.size()) + blocks.allocator().n_free();
  return n_blocks * blocks.block_tokens() - static_cast<int>(sequence.tokens.size());
}

// The number of state slots that guesses may use in this step. A sequence with a recurrent state saves it after each
// row, so each guess needs a slot during the step. Guesses may evict the snapshots in up to a quarter of all slots.
int Speculation::state_slots_of(const StepPlan& plan) {
  const StateSlots& states = state_.blocks.states();
  if (!states.is_used()) return max_logits_rows_;
  const int n_most = states.n_slots() / 4;
  const auto n_of_rows = static_cast<int>(plan.rows.size());
  return std::clamp(state_.blocks.make_states_free(n_of_rows + n_most) - n_of_rows, 0, n_most);
}

}  // namespace imp
