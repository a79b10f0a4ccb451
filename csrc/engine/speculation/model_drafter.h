// Guesses with a smaller model of the same vocabulary (a draft model).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/running_mean.h"
#include "engine/speculation/draft_steps.h"
#include "engine/speculation/drafter.h"

namespace imp {

// Draws each guess with the request's own sampler and the random number of the output that it guesses. So a draft model
// with the same distribution as the model is always right, at any temperature. (Greedy guesses are right less often.
// Rejection sampling with other random numbers would preserve only the distribution of outputs, not the outputs.) All
// sequences of a round share the steps of the draft model.
//
// A sequence drafts from its first output on. The draft model first evaluates the prompt, in chunks that take at most a
// quarter of the time of the model's steps. Until then the sequence gets no guesses.
class ModelDrafter final : public Drafter {
 public:
  static constexpr std::string_view kName = "model";
  static constexpr int kMaxFailures = 3;  // after this many failed rounds in a row the drafter is off

  explicit ModelDrafter(std::shared_ptr<DraftSteps> steps, double assumed_cost = 0);
  std::string_view name() const noexcept override { return kName; }
  double cost_of_token() const noexcept override;
  // The time to evaluate the tokens that the shadow lacks; 0 if they are not more than one chunk.
  double start_cost(const Sequence& sequence) const noexcept override;
  void draft(std::span<DraftRequest> requests) override;
  void observe(const Step& step) override;
  void forget(const Sequence& sequence) noexcept override { steps_->shadows().erase(sequence.id); }
  void flush() override { steps_->shadows().blocks().flush(); }

  bool is_off() const noexcept { return n_failures_ >= kMaxFailures; }
  const ShadowSequences& shadows() const noexcept { return steps_->shadows(); }

 private:
  // A sequence that takes part in a round.
  struct Drafting {
    DraftRequest* request = nullptr;
    Shadow* shadow = nullptr;
    int n_wanted = 0;
  };
  // A running mean of times in nanoseconds; 0: nothing is measured yet.
  void choose(std::span<DraftRequest> requests);
  int n_possible(const DraftRequest& request) const noexcept;
  int n_prompt_rows() const noexcept;
  void plan_first_step();
  void plan_next_step();
  void add_rows(Drafting& drafting, int n_rows);
  bool run_step();
  bool take_draws();
  bool take(const Draw& draw, Drafting& drafting);
  void fail_round() noexcept;

  std::shared_ptr<DraftSteps> steps_;
  double assumed_cost_;
  int n_failures_ = 0;
  std::uint64_t round_ = 0;

  RunningMean step_ns_;        // of the model
  RunningMean single_row_ns_;  // of the model, for one row
  RunningMean prompt_row_ns_;  // of the draft model, in a chunk of a prompt
  RunningMean token_ns_;       // of the draft model, for a guess

  std::vector<Drafting> drafting_;  // scratch of draft()
};

}  // namespace imp
