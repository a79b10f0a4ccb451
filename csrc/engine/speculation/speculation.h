// Speculative decoding: adds guesses to the decode rows of a step, so that one step may give a sequence several tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "engine/engine_state.h"
#include "engine/speculation/draft_control.h"
#include "engine/speculation/drafter.h"

namespace imp {

// Sample and match. Each row of a guess is drawn from with the request's own sampler, output index and history, as if
// all guesses before it were outputs. Draws count up to the first one that differs from the next guess. Since a row's
// logits do not depend on the other rows of its batch, the outputs are the same as without guesses, for any sampler.
// ("Fast Inference from Transformers via Speculative Decoding" accepts by a random test instead, which keeps only the
// distribution.)
//
// Guesses are part of a sequence's tokens only while a step evaluates them: the scheduler, the prefix cache and
// the commands see only outputs. Guesses use what a planned step leaves free: rows, rows with logits and blocks. Of
// these, DraftControl takes what is worth its time.
//
// The guesses of a constrained run come from outside the engine, with a mask for each row. Where they are worth their
// time, the run asks for them with a DraftedEvent. The text side takes those that it proposes, as far as the constraint
// allows them, or what the constraint forces (the drafter "grammar").
class Speculation {
 public:
  // The clock outlives it.
  Speculation(EngineState& state, int max_logits_rows, Drafters drafters, const Clock& clock);

  bool is_on() const noexcept { return !drafters_.empty(); }
  // Appends guesses to the sequences that decode in this step, and rows to evaluate them to the plan.
  void extend(StepPlan& plan);
  // The step that ended reported the events from this one on. Asks the text side for the guesses that are worth it.
  void ask(std::size_t first_event);
  // Takes the guesses out of a plan whose step failed. Returns false if there were none.
  bool withdraw(StepPlan& plan);
  // The step is completed: counts which guesses were right.
  void count(const Step& step);
  // The step took this long.
  void learn(const Step& step, std::int64_t step_ns);
  // Shows a complete step to the drafters.
  void observe(Step& step);
  // Copies what the drafters keep under the numbers of these blocks.
  void copy_blocks(std::span<const BlockCopy> copies);
  // Frees what the drafters keep of sequences that have ended.
  void flush();
  // The most guesses of a step.
  std::size_t max_guesses() const noexcept { return rounds_.size(); }
  // Whether a sequence of the step may draft in the next one, which then has to wait for this step's tokens.
  bool may_follow(const Step& step) const noexcept;

 private:
  // Of a sequence that decodes in the step and may draft.
  struct Round {
    PlannedRows* planned = nullptr;
    int n_most = 0;
    int drafter = -1;  // which made the guesses; -1: none did
    int n_chosen = 0;
    std::vector<Guess> guesses;
  };

  int grammar() const noexcept { return static_cast<int>(drafters_.size()); }
  void find_rounds(StepPlan& plan);
  void make_guesses(const StepPlan& plan);
  void ask_drafter(std::size_t drafter, bool is_costly);
  void choose(const StepPlan& plan, std::optional<std::size_t> costly_drafter);
  StepShape shape_of(const StepPlan& plan) const;
  int n_free(const StepPlan& plan) const noexcept;
  std::optional<DraftSkip> skip_reason(const Sequence& sequence) const noexcept;
  int n_wanted(const Sequence& sequence) const noexcept;
  void take_given(Round& round) const;
  void count_answer(Sequence& sequence);
  int n_to_ask(Sequence& sequence);
  void make_proposal(Sequence& sequence, DraftedEvent& event);
  int n_outputs_left(const Sequence& sequence) const noexcept;
  void charge(const Step& step);
  Sequence* running_sequence(const StepRow& row);
  int n_writable(const Sequence& sequence) const noexcept;
  int state_slots_of(const StepPlan& plan);
  bool may_draft_next(const Sequence& sequence) const noexcept;
  void append(Round& round, StepPlan& plan);
  void count_skip(Sequence& sequence, DraftSkip skip) noexcept;

  EngineState& state_;
  const Clock& clock_;
  std::int64_t draft_ns_ = 0;  // of this step: choosing and making guesses
  int max_logits_rows_;
  Drafters& drafters_;  // of the state
  DraftControl control_;
  std::vector<Round> rounds_;  // of the last step; the first n_rounds_
  std::size_t n_rounds_ = 0;
  std::vector<DraftRequest> requests_;  // scratch of extend(), and below
  std::vector<Round*> asked_;
  std::vector<Round*> weighed_;
  std::vector<DraftOption> options_;
  std::vector<BlockCopy> copies_;
  int n_state_slots_ = 0;  // left in this step for guesses
};

}  // namespace imp
