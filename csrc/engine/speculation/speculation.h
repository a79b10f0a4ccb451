// Speculative decoding: adds guesses to the decode rows of a step, so that one step may give a sequence several tokens.
#pragma once

#include <memory>
#include <vector>

#include "engine/engine_state.h"
#include "engine/speculation/drafter.h"

namespace imp {

// Sample and match. Each row of a guess is drawn from with the request's own sampler, output index and history, as if
// all guesses before it were outputs. Draws count up to the first one that differs from the next guess. Since a row's
// logits do not depend on the other rows of its batch, the outputs are those without guesses, whatever the sampler.
// ("Fast Inference from Transformers via Speculative Decoding" accepts by a random test instead, which keeps only the
// distribution.)
//
// Guesses are part of a sequence's tokens only while a step evaluates them: the scheduler, the prefix cache and the
// commands see outputs alone. They take what a planned step leaves: rows, rows with logits and free blocks.
class Speculation {
 public:
  Speculation(EngineState& state, int max_logits_rows, Drafters drafters);

  // Appends guesses to the sequences that decode in this step, and rows to evaluate them to the plan.
  void extend(StepPlan& plan);
  // Takes the guesses out of a plan whose step failed. Returns false if there were none.
  bool withdraw(StepPlan& plan);
  // Shows a complete step to the drafters.
  void observe(Step& step);
  // Frees what the drafters keep of sequences that have ended.
  void flush();
  // The most guesses of a step.
  std::size_t most_guesses() const noexcept { return requests_.size(); }
  // Whether a sequence of the step may draft in the next one, which then has to wait for this step's tokens.
  bool may_follow(const Step& step) const noexcept;

 private:
  int n_wanted(const Sequence& sequence) const noexcept;
  int n_writable(const Sequence& sequence) const noexcept;
  int state_slots_of(const StepPlan& plan);
  void append(PlannedRows& planned, std::span<const Guess> guesses, StepPlan& plan);

  EngineState& state_;
  int max_logits_rows_;
  Drafters& drafters_;                  // of the state
  std::vector<DraftRequest> requests_;  // scratch of extend(), and below
  std::vector<PlannedRows*> planned_;
  std::vector<BlockCopy> copies_;
  int n_state_slots_ = 0;  // left in this step for guesses
};

}  // namespace imp
