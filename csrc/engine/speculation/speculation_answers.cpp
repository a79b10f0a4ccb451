// Guesses of constrained runs: proposes them to the text side, and takes its answers.
#include <algorithm>
#include <cstddef>
#include <optional>
#include <variant>

#include "base/timing.h"
#include "engine/speculation/speculation.h"

namespace imp {

// Takes the guesses that came with the masks. A guess from a drafter's proposal keeps its confidence.
void Speculation::take_given(Round& round) const {
  const Run& run = *round.planned->sequence->run;
  const int n = std::min(round.n_most, run.n_given());
  if (n <= 0) return;
  // Without a proposal, the guesses count for the drafter "grammar".
  const bool is_proposed = !run.given.forced && run.proposal.drafter >= 0;
  round.drafter = is_proposed ? run.proposal.drafter : grammar();
  for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
    const std::uint8_t confidence = is_proposed ? run.proposal.confidence[i] : std::uint8_t{0};
    round.guesses.push_back({.token = run.given.tokens[i], .confidence = confidence});
  }
}

// Measures how long the run waited for the answer to its last step: a mask, or the answer to a DraftedEvent.
void Speculation::count_answer(Sequence& sequence) {
  Run& run = *sequence.run;
  if (run.proposal.made_ns < 0 || run.given.taken_ns < 0) return;
  const auto wait_ns = static_cast<double>(run.given.taken_ns - run.proposal.made_ns);
  control_.add_wait(sequence.drafting, run.proposal.n_asked, static_cast<int>(run.given.tokens.size()), wait_ns);
  run.proposal.made_ns = -1;
}

void Speculation::ask(std::size_t first_event) {
  if (drafters_.empty()) return;
  std::optional<Timing> timing;
  const std::size_t n_events = state_.events.size();
  for (std::size_t i = first_event; i < n_events; ++i) {
    auto* const token = std::get_if<TokenEvent>(&state_.events[i]);
    if (token == nullptr || !token->awaits_mask) continue;
    Sequence& sequence = *state_.find(token->sequence);
    Run& run = *sequence.run;
    if (!run.may_ask) continue;
    if (!timing) timing.emplace(clock_, draft_ns_);
    const int n_asked = n_to_ask(sequence);
    run.proposal = {.made_ns = state_.now_ns, .n_asked = n_asked};
    if (n_asked <= 0) continue;
    token->awaits_mask = false;
    run.given.output = -1;
    DraftedEvent event{.ticket = run.ticket,
                       .sequence = sequence.id,
                       .stream = sequence.stream,
                       .output = run.n_outputs,
                       .n_most = n_asked};
    make_proposal(sequence, event);
    state_.events.emplace_back(event);
  }
}

int Speculation::n_to_ask(Sequence& sequence) {
  const int n_most = skip_reason(sequence) ? 0 : n_wanted(sequence);
  return state_.options.fixed_depth ? n_most : control_.n_to_ask(sequence.drafting, n_most);
}

// Fills the event with guesses. Does not ask drafters with a cost, because the constraint may reject their guesses.
void Speculation::make_proposal(Sequence& sequence, DraftedEvent& event) {
  DraftRequest& request = requests_.front();
  Proposal& proposal = sequence.run->proposal;
  request.sequence = &sequence;
  request.n_wanted = event.n_most;
  request.guesses.clear();
  for (std::size_t i = 0; i < drafters_.size() && request.guesses.empty(); ++i) {
    if (drafters_[i]->cost_of_token() > 0 || !sequence.run->may_use(i)) continue;
    drafters_[i]->draft({&request, 1});
    proposal.drafter = static_cast<int>(i);
  }
  if (!state_.options.fixed_depth && !request.guesses.empty()) {
    const int n = control_.n_worth_masks(sequence.drafting, proposal.drafter, request.guesses);
    request.guesses.resize(static_cast<std::size_t>(n));
  }
  for (const Guess& guess : request.guesses) {
    proposal.confidence[static_cast<std::size_t>(event.n_tokens)] = guess.confidence;
    event.tokens[event.n_tokens++] = guess.token;
  }
}

}  // namespace imp
