// Speculative decoding: adds guesses to the decode rows of a step, so that one step may give a sequence several tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "engine/schedule/engine_state.h"
#include "engine/speculation/draft_control.h"
#include "engine/speculation/drafter.h"
#include "engine/step/step.h"

namespace imp {

// Sample and match. The row of each guess is sampled with the request's own sampler, output index and history, as if
// all guesses before it were outputs. The draws are outputs up to and including the first one that differs from the
// next guess. A row's logits do not depend on the other rows of its batch, so the outputs are those without guesses,
// for any sampler. ("Fast Inference from Transformers via Speculative Decoding" accepts by a random test instead, which
// preserves only the distribution.)
//
// Guesses are part of a sequence's tokens only while a step evaluates them. The scheduler, the prefix cache and the
// commands see only outputs. Guesses use only the rows, logits rows and blocks that a planned step leaves free.
// DraftControl decides how many of these are worth their time.
//
// A constrained run needs a mask for the row of each guess, so its guesses come from outside the engine. If guesses are
// worth their time, the engine sends a DraftedEvent with a proposal. The text side answers with the proposed guesses
// that the constraint allows, or with the tokens that the constraint forces (the drafter "grammar").
class Speculation {
 public:
  // The clock outlives it.
  Speculation(EngineState& state, int max_logits_rows, Drafters drafters, const Clock& clock);

  // The drafters may read the model's cache, which outlives this.
  void read_cache(const KvPool& cache);

  bool is_on() const noexcept { return !drafters_.empty(); }
  bool has_drafter(std::string_view name) const noexcept;
  // Appends guesses to the sequences that decode in this step, and rows to evaluate them to the plan.
  void extend(StepPlan& plan);
  // Asks the text side for guesses, for the runs that await a mask. `first_event`: the first event of the completed
  // step.
  void ask(std::size_t first_event);
  // Removes the guesses from a plan whose step failed. Returns false if there were none.
  bool withdraw(StepPlan& plan);
  // Counts the right guesses of a completed step.
  void count(const Step& step);
  // Measures a completed step, which took step_ns.
  void learn(const Step& step, std::int64_t step_ns);
  // Shows a complete step to the drafters.
  void observe(Step& step);
  // Makes the same block copies in the drafters' caches.
  void copy_blocks(std::span<const BlockCopy> copies);
  // The sequence gets media. From now on every drafter guesses as for a new sequence with the same cells; only the
  // budget and a pause remain, since they bound the loss over all outputs.
  void restart(Sequence& sequence) noexcept;
  // The sequence ends: frees what the drafters keep of it.
  void forget(const Sequence& sequence) noexcept;
  // Frees what the drafters keep of sequences that have ended.
  void flush();
  // The most guesses of a step.
  std::size_t max_guesses() const noexcept { return rounds_.size(); }
  // Whether a sequence of the step may draft in the next one, which then has to wait for this step's tokens.
  bool may_follow(const Step& step) const noexcept;

 private:
  // A sequence that decodes in the step and may draft.
  struct Round {
    PlannedRows* planned = nullptr;
    int n_most = 0;
    int drafter = -1;  // the drafter that made the guesses; -1: there are none
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
  Drafters drafters_;  // in the order in which they are asked
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
