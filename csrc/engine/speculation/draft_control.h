// Decides how many guesses are worth their rows.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "engine/speculation/depth.h"
#include "engine/speculation/draft_history.h"
#include "engine/speculation/guess.h"
#include "engine/speculation/row_costs.h"

namespace imp {

// A sequence that decodes in a planned step, with the guesses that it may use.
struct DraftOption {
  DraftHistory* history = nullptr;
  int drafter = 0;                 // index of the drafter that made the guesses
  std::span<const Guess> guesses;  // if they cost something, only their sureness is known yet
  double guess_cost = 0;           // of making one, in steps of one row; 0 if they are made
  int n_chosen = 0;                // the answer: so many of them
};

// A pure object: it has no clock, and knows sequences only by their histories. A guess survives if it and all before it
// are right. The shares of right guesses come from the sequence's own rounds and, while these are few, from those of
// all sequences. With the times of steps they say how many guesses give the most outputs in a time.
//
// What does not seem worth it is tried now and then, because the text may have changed: every kTrialSteps steps a
// sequence gets one guess more. If it had none, it gets one in up to kTrials steps, as long as they are right. A
// sequence whose last kReviewRounds rounds gained nearly nothing stops for a number of outputs, which doubles each
// time.
class DraftControl {
 public:
  static constexpr int kTrialSteps = 64;
  static constexpr int kTrials = 8;
  static constexpr int kReviewRounds = 128;
  static constexpr double kLeastGain = 1.02;

  // Afterwards nothing allocates. A step has at most max_options options, each with at most max_guesses guesses.
  void reserve(int max_options, int max_guesses);

  // What guesses are worth before any of this kind is verified.
  void set_prior(int drafter, int sureness, RightShares shares);

  // Chooses none where a step without guesses is to show what it costs.
  void choose(std::span<DraftOption> options, const StepShape& step);
  // The step of the last choose() verified the chosen guesses of the option: the first n_right are right.
  void add_round(DraftHistory& history, int drafter, std::span<const Guess> verified, int n_right);
  // The sequence had an output without guesses.
  static void add_single(DraftHistory& history) noexcept;

  RowCosts& costs() noexcept { return costs_; }
  const RowCosts& costs() const noexcept { return costs_; }

 private:
  void weigh(std::span<DraftOption> options, const StepShape& step);
  void try_one_more(std::span<DraftOption> options, const StepShape& step);
  bool may_add_row(std::span<const DraftOption> options, const StepShape& step) const noexcept;
  void set_price(std::span<const DraftOption> options, const StepShape& step) noexcept;
  void find_survivals(const DraftOption& option, std::span<double> into) const noexcept;
  void review(DraftHistory& history, std::size_t n_guesses, int n_right) const noexcept;

  RowCosts costs_;
  std::array<std::array<RightShares, Acceptance::kClasses>, kMaxDrafters> priors_{};
  std::array<Acceptance, kMaxDrafters> of_all_{};  // of all sequences
  int n_steps_without_trial_ = 0;
  double price_ = 0;  // of a guess of the step: what its time is worth in outputs without guesses

  std::size_t max_guesses_ = 0;
  std::vector<double> survivals_;  // scratch of choose()
  std::vector<DepthChoice> choices_;
};

}  // namespace imp
