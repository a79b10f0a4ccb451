// Guesses with a smaller model of the same vocabulary (a draft model).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/clock.h"
#include "engine/speculation/drafter.h"
#include "engine/speculation/shadow_sequences.h"
#include "engine/step_executor.h"

namespace imp {

struct DraftModelOptions {
  int n_blocks = 0;     // of its cache
  int max_context = 0;  // no position at or beyond it is evaluated
  int max_running = 0;  // sequences in one step
  bool prefix_cache = true;
  std::vector<std::int32_t> suppressed_tokens;  // never guessed: those that are not the same in the model's vocabulary
  double cost_of_token = 0;                     // until it is measured; see Drafter
};

// Draws each guess with the request's own sampler and the random number of the output that it guesses. So a draft model
// that thinks as the model does guesses right whatever the temperature. (Greedy guesses are right less often, and
// rejection sampling with other random numbers keeps only the distribution.) Guesses are steps of the one executor, of
// all sequences together.
//
// A sequence drafts from its first output on. Its prompt is evaluated first, in chunks that take at most a quarter of
// the time of the model's steps; until then there are no guesses for it.
class ModelDrafter final : public Drafter {
 public:
  static constexpr std::string_view kName = "model";
  static constexpr int kMostFailures = 3;  // in a row: then it is off

  // The backend and the forward pass outlive it.
  ModelDrafter(Backend& backend, ForwardPass& forward, const DraftModelOptions& options, Clock clock = {});
  std::string_view name() const noexcept override { return kName; }
  double cost_of_token() const noexcept override;
  // The tokens that the shadow lacks, if they are more than a round brings.
  double start_cost(const Sequence& sequence) const noexcept override;
  void draft(std::span<DraftRequest> requests) override;
  void observe(const Step& step) override;
  void forget(const Sequence& sequence) noexcept override { shadows_.erase(sequence.id); }
  void flush() override { shadows_.blocks().flush(); }

  bool is_off() const noexcept { return n_failures_ >= kMostFailures; }
  const ShadowSequences& shadows() const noexcept { return shadows_; }

 private:
  // A sequence that takes part in a round.
  struct Drafting {
    DraftRequest* request = nullptr;
    Shadow* shadow = nullptr;
    int n_wanted = 0;
  };
  // Of times in nanoseconds; 0: nothing was measured.
  class RunningMean {
   public:
    void add(double value) noexcept { mean_ = mean_ == 0 ? value : mean_ + (value - mean_) / 8; }
    double value() const noexcept { return mean_; }

   private:
    double mean_ = 0;
  };

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

  Clock clock_;
  int max_context_;
  int max_rows_;
  std::size_t max_sequences_;
  double assumed_cost_;
  ShadowSequences shadows_;
  StateSaves states_;  // of no recurrent state
  StepExecutor executor_;
  int n_failures_ = 0;
  std::uint64_t round_ = 0;

  RunningMean step_ns_;        // of the model
  RunningMean single_row_ns_;  // of the model, for one row
  RunningMean prompt_row_ns_;  // of the draft model, in a chunk of a prompt
  RunningMean token_ns_;       // of the draft model, for a guess

  Step step_;  // scratch of draft(), and below
  std::vector<Drafting> drafting_;
  std::vector<PlannedRows> rows_;
  std::vector<BlockCopy> copies_;
};

}  // namespace imp
