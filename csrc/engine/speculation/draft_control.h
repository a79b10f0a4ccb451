// Decides how many guesses a step verifies.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "engine/data/guess.h"
#include "engine/sequence/draft_history.h"
#include "engine/speculation/depth.h"
#include "engine/speculation/row_costs.h"

namespace imp {

// A sequence that decodes in a planned step, and its possible guesses.
struct DraftOption {
  DraftHistory* history = nullptr;
  int drafter = 0;                 // index of the drafter that made the guesses
  std::span<const Guess> guesses;  // if guess_cost > 0, they are not made yet: only their confidence is set
  double guess_cost = 0;           // of making one guess, in units of a step with one row; 0 if they are made
  double start_cost = 0;           // of what the drafter has to evaluate before the first guess
  int n_had = 0;                   // outputs of the sequence so far
  int n_ahead = 0;                 // outputs that it may still have
  int n_chosen = 0;                // output: the first n_chosen guesses are verified
};

// The measured times of a step.
struct StepTimes {
  double work_ns = 0;         // all but draft_ns
  double draft_ns = 0;        // choosing and making guesses
  bool is_held_back = false;  // it waited for the previous step, which it would have overlapped without guesses
};

// A pure object: it reads no clock, and sees of a sequence only its history. A guess survives if it and all guesses
// before it are right. Acceptance rates come from the sequence's own rounds and, while these are few, from the rounds
// of all sequences. From these rates and the measured step times follows the number of guesses with the most outputs
// per unit of time.
//
// Such an estimate may be wrong. So each sequence and the server have a budget (DraftBudget), which pays for guesses
// with the time that their step really took. A guess is left out if the budgets could not pay for it if it were wrong.
// This also bounds the loss at the first outputs, when nothing is measured yet.
//
// Trials: the text may have changed, so every kTrialSteps steps a sequence gets one guess more than seems worth it. If
// it had none, it gets one in each of up to kTrials steps, as long as they are right. Backoff: a sequence whose last
// kReviewRounds rounds gained nearly nothing does not draft for a number of outputs, which doubles each time.
class DraftControl {
 public:
  static constexpr int kTrialSteps = 64;
  static constexpr int kTrials = 8;
  static constexpr int kReviewRounds = 128;
  static constexpr double kMinGain = 1.02;
  static constexpr double kMaxServerBudget = 256;  // outputs in the server's budget
  // The expected gain of a drafter must be this many times its start cost.
  static constexpr double kPayback = 2;
  // A trial may gain nothing. So its start cost is at most this share of the time of the sequence's outputs so far.
  static constexpr double kMaxTrialStart = 0.03;
  // A sequence is expected to have as many further outputs as it has had so far, but at least this many.
  static constexpr int kMinAhead = 128;

  // Reserves memory for steps of up to max_options options with up to max_guesses guesses each. The other methods then
  // allocate nothing.
  void reserve(int max_options, int max_guesses);

  // The acceptance rates of a confidence class before any guess of it is verified.
  void set_prior(int drafter, int confidence, RightShares shares);

  // Sets n_chosen of each option. Chooses no guess if the time of a step without guesses has to be measured.
  void choose(std::span<DraftOption> options, const StepShape& step);
  // Whether the budgets can pay for asking the drafters.
  bool may_draft(const DraftHistory& history) const noexcept {
    return history.budget.left() > 0 && budget_.left() > drafting_loss_;
  }

  // Counts a round: the step of the last choose() verified these guesses, and the first n_right are right.
  void add_round(DraftHistory& history, int drafter, std::span<const Guess> verified, int n_right);
  // Counts an output without guesses.
  static void add_single(DraftHistory& history) noexcept;
  // Measures a step that verified n_guesses, of which n_right are right, and charges the server's budget. charge() then
  // charges the budget of each sequence that had an output in it. `guess_cost`: of making one of its guesses.
  void add_step(const StepShape& step, int n_guesses, int n_right, const StepTimes& times) noexcept;
  void charge(DraftHistory& history, int n_guesses, int n_right, double guess_cost) const noexcept;

  // For a constrained run: the number of guesses, at most n_most, to request from the text side with its next masks. If
  // it is 0, the text side does not search for guesses.
  int n_to_ask(DraftHistory& history, int n_most) noexcept;
  // The number of these guesses that are each worth the cost of a mask.
  int n_worth_masks(const DraftHistory& history, int drafter, std::span<const Guess> guesses);
  // Measures an answer of the text side: it was asked for n_asked guesses, and gave n_given after wait_ns.
  void add_wait(DraftHistory& history, int n_asked, int n_given, double wait_ns) noexcept;
  // Counts the right guesses of an answer, which a step has verified.
  void add_answered(DraftHistory& history, int n_right) noexcept;

  RowCosts& costs() noexcept { return costs_; }
  const RowCosts& costs() const noexcept { return costs_; }

 private:
  void weigh(std::span<DraftOption> options, const StepShape& step);
  void drop_starts(std::span<DraftOption> options, const StepShape& step) noexcept;
  void keep_to_budgets(std::span<DraftOption> options, const StepShape& step) noexcept;
  DraftOption* over_budget(std::span<DraftOption> options, const StepShape& step) const noexcept;
  void try_one_more(std::span<DraftOption> options, const StepShape& step);
  bool may_add_row(std::span<DraftOption> options, DraftOption& option, const StepShape& step) const noexcept;
  double max_extra_ns(const StepShape& step, int n_guesses) const noexcept;
  double extra_ns(const StepShape& step, int n_guesses, double work_ns) const noexcept;
  double plain_ns(const StepShape& step) const noexcept;
  double one_row_ns(const StepShape& step) const noexcept;
  double wait_and_step_ns(const DraftHistory& history) const noexcept;
  bool is_worth_asking(DraftHistory& history) const noexcept;
  void find_survivals(int drafter, const DraftHistory& history, std::span<const Guess> guesses,
                      std::span<double> into) const noexcept;
  static void review(DraftHistory& history, int n_outputs, double n_paid) noexcept;

  RowCosts costs_;
  std::array<std::array<RightShares, Acceptance::kClasses>, kMaxDrafters> priors_{};
  std::array<Acceptance, kMaxDrafters> of_all_{};  // of all sequences
  int n_steps_without_trial_ = 0;
  DraftBudget budget_{kMaxServerBudget};
  double drafting_loss_ = 0;  // running mean of the cost of draft_ns per step, in outputs
  MaskCosts masks_;           // of all sequences
  // Of the last step: its time without guesses, the time of a step with one row, the time that each guess added, and
  // the time that each of its sequences lost because the step was held back.
  double plain_ns_ = 0;
  double one_row_ns_ = 0;
  double guess_ns_ = 0;
  double held_back_ns_ = 0;
  int n_outputs_ = 1;
  StepShape last_step_;  // that decoded, without its prompts

  std::size_t max_guesses_ = 0;
  std::vector<double> survivals_;  // scratch of choose()
  std::vector<DepthChoice> choices_;
};

}  // namespace imp
