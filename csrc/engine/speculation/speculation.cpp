// Plans the rows of guesses.
#include "engine/speculation/speculation.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include "base/error.h"
#include "engine/speculation/model_drafter.h"
#include "engine/speculation/ngram_drafter.h"
#include "engine/step_executor.h"

namespace imp {
namespace {

std::unique_ptr<Drafter> make_drafter(const std::string& name, std::size_t number) {
  if (name == NgramDrafter::kName) return std::make_unique<NgramDrafter>();
  throw FieldInvalid("drafters[" + std::to_string(number) + "]", name + ", expected ngram or model");
}

}  // namespace

Speculation::Speculation(EngineState& state, int max_logits_rows, Drafters drafters)
    : state_(state), max_logits_rows_(max_logits_rows), drafters_(state.drafters) {
  drafters_ = std::move(drafters);
  for (std::size_t i = 0; i < state.options.drafters.size(); ++i) {
    const std::string& wanted = state.options.drafters[i];
    // Those that were given are used in their turn.
    const auto given = std::ranges::find(drafters_, wanted, [](const auto& drafter) { return drafter->name(); });
    if (given != drafters_.end()) {
      std::rotate(given, given + 1, drafters_.end());
    } else if (wanted != ModelDrafter::kName) {
      drafters_.push_back(make_drafter(wanted, i));
    }
  }
  if (drafters_.empty()) return;
  IMP_CHECK(drafters_.size() < kMaxDrafters);  // and the grammar
  control_.reserve(max_logits_rows, kLimits.draft_tokens);
  for (std::size_t i = 0; i < drafters_.size(); ++i) {
    state.stats.drafters[i].name = drafters_[i]->name();
    for (int sureness = 0; sureness < Acceptance::kClasses; ++sureness) {
      control_.set_prior(static_cast<int>(i), sureness, drafters_[i]->prior(sureness));
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

void Speculation::extend(StepPlan& plan) {
  if (drafters_.empty()) return;
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
    if (const std::optional<DraftSkip> skip = why_not(sequence)) {
      count_skip(sequence, *skip);
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

// Drafters are asked in order. Each one sees only the sequences for which those before it had no guess. Guesses that
// cost something are made once it is known how many are worth it.
void Speculation::make_guesses(const StepPlan& plan) {
  bool is_chosen = false;
  for (std::size_t i = 0; i < drafters_.size(); ++i) {
    const bool is_costly = drafters_[i]->cost_of_token() > 0 && !state_.options.fixed_depth;
    if (is_costly) choose(plan, i);
    ask(i, is_costly);
    is_chosen = is_costly;
  }
  if (!is_chosen) choose(plan, std::nullopt);
}

void Speculation::ask(std::size_t drafter, bool is_costly) {
  asked_.clear();
  for (std::size_t i = 0; i < n_rounds_; ++i) {
    Round& round = rounds_[i];
    if (round.drafter >= 0 || round.planned->sequence->run->constrained) continue;
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

// Sets n_chosen of the rounds that have guesses, and of the others if a costly drafter is to make some.
void Speculation::choose(const StepPlan& plan, std::optional<std::size_t> costly_drafter) {
  weighed_.clear();
  options_.clear();
  for (std::size_t i = 0; i < n_rounds_; ++i) {
    Round& round = rounds_[i];
    const bool is_made = round.drafter >= 0;
    const bool can_be_made = costly_drafter && !round.planned->sequence->run->constrained;
    if (round.n_most <= 0 || (!is_made && !can_be_made)) continue;
    if (!is_made) round.guesses.resize(static_cast<std::size_t>(round.n_most));
    const auto drafter = is_made ? static_cast<std::size_t>(round.drafter) : *costly_drafter;
    if (state_.options.fixed_depth) {
      round.n_chosen = static_cast<int>(round.guesses.size());
      continue;
    }
    weighed_.push_back(&round);
    options_.push_back({.history = &round.planned->sequence->drafting,
                        .drafter = static_cast<int>(drafter),
                        .guesses = round.guesses,
                        .guess_cost = is_made ? 0 : drafters_[drafter]->cost_of_token()});
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

// Guesses for which the step has room.
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

// Takes the guesses that came with the masks. One that the text side took from a drafter is as sure as it was.
void Speculation::take_given(Round& round) const {
  const Run& run = *round.planned->sequence->run;
  const int n = std::min(round.n_most, run.n_given());
  if (n <= 0) return;
  // Without a proposal, whatever came is counted as the constraint's.
  const bool is_proposed = !run.given.forced && run.proposal.drafter >= 0;
  round.drafter = is_proposed ? run.proposal.drafter : grammar();
  for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
    const std::uint8_t sureness = is_proposed ? run.proposal.sureness[i] : std::uint8_t{0};
    round.guesses.push_back({.token = run.given.tokens[i], .sureness = sureness});
  }
}

// Drafters that compute would do so for guesses that the constraint may refuse.
void Speculation::propose(std::span<Event> events) {
  for (Event& event : events) {
    auto* const drafted = std::get_if<DraftedEvent>(&event);
    if (drafted == nullptr) continue;
    DraftRequest& request = requests_.front();
    request.sequence = state_.find(drafted->sequence);
    Proposal& proposal = request.sequence->run->proposal;
    request.n_wanted = why_not(*request.sequence) ? 0 : n_wanted(*request.sequence);
    request.guesses.clear();
    proposal = {};
    drafted->n_most = request.n_wanted;
    for (std::size_t i = 0; i < drafters_.size(); ++i) {
      if (request.n_wanted <= 0 || !request.guesses.empty()) break;
      if (drafters_[i]->cost_of_token() > 0) continue;
      drafters_[i]->draft({&request, 1});
      proposal.drafter = static_cast<int>(i);
    }
    for (const Guess& guess : request.guesses) {
      proposal.sureness[static_cast<std::size_t>(drafted->n_tokens)] = guess.sureness;
      drafted->tokens[drafted->n_tokens++] = guess.token;
    }
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

// The guesses of a sequence that has ended count for their class too.
void Speculation::count(const Step& step) {
  if (drafters_.empty()) return;
  for (const StepRow& row : step.rows) {
    if (!row.planned.last) continue;
    Sequence* found = state_.find(row.id);
    const bool goes_on = found == row.planned.sequence && found->run && found->run->ticket == row.ticket;
    if (row.planned.n_guesses == 0) {
      if (goes_on) DraftControl::add_single(found->drafting);
      continue;
    }
    const Round& round = rounds_[static_cast<std::size_t>(row.planned.round)];
    const std::span<const Guess> guesses = round.guesses;
    DraftHistory unused;
    // An end inside the round says nothing of the guesses after it.
    if (goes_on) {
      control_.add_round(found->drafting, row.planned.drafter, guesses, row.n_right);
    } else {
      control_.add_round(unused, row.planned.drafter, guesses.first(static_cast<std::size_t>(row.n_right)),
                         row.n_right);
    }
  }
}

// Only steps without prompts say what a row of a guess costs: rows of prompts need no logits.
void Speculation::learn(const Step& step, std::int64_t step_ns) {
  if (drafters_.empty()) return;
  const auto ns = static_cast<double>(step_ns);
  if (step.n_decode_rows == 0) {
    control_.costs().add_prompt(step.n_prefill_rows, ns);
  } else if (step.n_prefill_rows == 0) {
    double n_held = 0;
    for (const StepRow& row : step.rows) n_held += row.first_position;
    control_.costs().add(step.n_decode_rows + step.n_guess_rows, n_held, ns);
  }
}

bool Speculation::may_follow(const Step& step) const noexcept {
  return !drafters_.empty() && std::ranges::any_of(step.rows, [this](const StepRow& row) {
    return row.planned.last && is_armed(*row.planned.sequence);
  });
}

// Without guesses the next step may begin before this one ends. A sequence that had none for a while is looked at now
// and then.
bool Speculation::is_armed(const Sequence& sequence) const noexcept {
  constexpr int kPeriod = 16;
  if (!sequence.run->started || why_not(sequence) || n_wanted(sequence) <= 1) return false;
  const int n_singles = sequence.drafting.n_singles;
  return state_.options.fixed_depth || n_singles < kPeriod || n_singles % kPeriod == 0;
}

std::optional<DraftSkip> Speculation::why_not(const Sequence& sequence) const noexcept {
  const Run& run = *sequence.run;
  if (run.constrained && !run.asks_for_guesses) return DraftSkip::constraint;
  if (sequence.drafting.n_off > 0) return DraftSkip::not_worth_it;
  return std::nullopt;
}

// The most guesses that the run can use now. The last output needs none: nothing follows it.
int Speculation::n_wanted(const Sequence& sequence) const noexcept {
  const Run& run = *sequence.run;
  const int n_outputs_left =
      run.limits.max_outputs < 0 ? kLimits.draft_tokens : run.limits.max_outputs - run.n_outputs - 1;
  const int n_positions_left = state_.options.max_context - static_cast<int>(sequence.history().size());
  const int most = run.constrained ? kLimits.constrained_draft_tokens : kLimits.draft_tokens;
  return std::max(0, std::min({most, run.max_draft_tokens, n_outputs_left, n_positions_left}));
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

}  // namespace imp
