// Guesses of constrained runs: proposes them to the text side, and takes its answers.
#include <algorithm>
#include <optional>
#include <variant>

#include "base/timing.h"
#include "engine/speculation/speculation.h"

namespace imp {
namespace {

// After so many outputs that asked for no guess, few runs that begin take part in the exchange of guesses at all.
constexpr int kManyOutputs = 256;

}  // namespace

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

// The answer to the last DraftedEvent is there.
void Speculation::count_answer(Sequence& sequence) {
  Run& run = *sequence.run;
  if (run.proposal.made_ns < 0 || run.given.taken_ns < 0) return;
  const auto wait_ns = static_cast<double>(run.given.taken_ns - run.proposal.made_ns);
  control_.add_wait(sequence.drafting, run.proposal.n_asked, static_cast<int>(run.given.tokens.size()), wait_ns);
  run.proposal.made_ns = -1;
}

void Speculation::propose(std::span<Event> events) {
  std::optional<Timing> timing;
  for (Event& event : events) {
    auto* const drafted = std::get_if<DraftedEvent>(&event);
    if (drafted == nullptr) continue;
    if (!timing) timing.emplace(clock_, draft_ns_);
    make_proposal(*drafted);
  }
}

// Drafters that compute would do so for guesses that the constraint may refuse.
void Speculation::make_proposal(DraftedEvent& event) {
  DraftRequest& request = requests_.front();
  Sequence& sequence = *state_.find(event.sequence);
  Proposal& proposal = sequence.run->proposal;
  const bool is_fixed = state_.options.fixed_depth;
  request.sequence = &sequence;
  request.n_wanted = why_not(sequence) ? 0 : n_wanted(sequence);
  if (!is_fixed && n_wanted(sequence) > 0) {
    request.n_wanted = control_.n_to_ask(sequence.drafting, request.n_wanted);
    n_not_asked_ = request.n_wanted > 0 ? 0 : std::min(n_not_asked_ + 1, kManyOutputs);
    state_.is_asking_worth_it = n_not_asked_ < kManyOutputs;
  }
  request.guesses.clear();
  sequence.run->given.taken_ns = -1;
  proposal = {.made_ns = state_.now_ns, .n_asked = request.n_wanted};
  event.n_most = request.n_wanted;
  for (std::size_t i = 0; i < drafters_.size(); ++i) {
    if (request.n_wanted <= 0 || !request.guesses.empty()) break;
    if (drafters_[i]->cost_of_token() > 0 || !sequence.run->may_use(i)) continue;
    drafters_[i]->draft({&request, 1});
    proposal.drafter = static_cast<int>(i);
  }
  if (!is_fixed && !request.guesses.empty()) {
    const int n = control_.n_worth_masks(sequence.drafting, proposal.drafter, request.guesses);
    request.guesses.resize(static_cast<std::size_t>(n));
  }
  for (const Guess& guess : request.guesses) {
    proposal.sureness[static_cast<std::size_t>(event.n_tokens)] = guess.sureness;
    event.tokens[event.n_tokens++] = guess.token;
  }
}

}  // namespace imp
