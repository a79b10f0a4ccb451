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
  std::span<const Guess> guesses;  // if they cost something, only their confidence is known yet
  double guess_cost = 0;           // of making one, in steps of one row; 0 if they are made
  double start_cost = 0;           // of what the drafter has to evaluate before the first one
  int n_ahead = 0;                 // outputs that the sequence may still have
  int n_chosen = 0;                // the answer: so many of them
};

// What a step took.
struct StepTimes {
  double work_ns = 0;         // without choosing and making guesses
  double draft_ns = 0;        // choosing and making guesses
  bool is_held_back = false;  // without guesses it would have begun before the one before it ended
};

// A pure object: it has no clock, and knows sequences only by their histories. A guess survives if it and all before it
// are right. The shares of right guesses come from the sequence's own rounds and, while these are few, from those of
// all sequences. With the times of steps they say how many guesses give the most outputs per unit of time.
//
// What these shares and times promise may be wrong. So a sequence and the server each have a budget (DraftBudget), from
// which guesses are paid by the time that their step really took. Guesses that the budgets could not pay if none were
// right are left out. This holds from the first output on, when nothing is known.
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
  static constexpr double kMinGain = 1.02;
  static constexpr double kMaxServerBudget = 256;  // outputs in the server's budget
  // What a drafter evaluates first must be expected to gain this many times its time.
  static constexpr double kPayback = 2;
  // A sequence is expected to have as many further outputs as it had so far, but at least this many.
  static constexpr int kMinAhead = 128;

  // Afterwards nothing allocates. A step has at most max_options options, each with at most max_guesses guesses.
  void reserve(int max_options, int max_guesses);

  // What guesses are worth before any of this kind is verified.
  void set_prior(int drafter, int confidence, RightShares shares);

  // Chooses none where a step without guesses is to show what it costs.
  void choose(std::span<DraftOption> options, const StepShape& step);
  // Whether guesses may be looked for: the budgets can pay that.
  bool may_draft(const DraftHistory& history) const noexcept {
    return history.budget.left() > 0 && budget_.left() > drafting_loss_;
  }

  // The step of the last choose() verified the chosen guesses of the option: the first n_right are right.
  void add_round(DraftHistory& history, int drafter, std::span<const Guess> verified, int n_right);
  // The sequence had an output without guesses.
  static void add_single(DraftHistory& history) noexcept;
  // Adds a step that verified n_guesses, of which n_right are right. Then charge() takes the part of each sequence that
  // had an output from its budget. `guess_cost`: of making one of its guesses.
  void add_step(const StepShape& step, int n_guesses, int n_right, const StepTimes& times) noexcept;
  void charge(DraftHistory& history, int n_guesses, int n_right, double guess_cost) const noexcept;

  // Of a constrained run: how many guesses, at most n_most, the text side is to give with its next masks. 0: none, so
  // that it does not look for any.
  int n_to_ask(DraftHistory& history, int n_most) noexcept;
  // How many of these guesses are worth a mask each.
  int n_worth_masks(const DraftHistory& history, int drafter, std::span<const Guess> guesses);
  // The text side was asked for n_asked guesses and gave n_given, after so long.
  void add_wait(DraftHistory& history, int n_asked, int n_given, double wait_ns) noexcept;
  // A step verified the guesses of an answer.
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
  double drafting_loss_ = 0;  // in outputs, of looking for guesses in a step; a running mean
  MaskCosts masks_;           // of all sequences
  // Of the last step: its time without guesses and that of one row, what a guess added to it, and what each of its
  // sequences lost because it was held back.
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
