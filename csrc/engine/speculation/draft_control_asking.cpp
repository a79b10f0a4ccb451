// Constrained runs: decides whether the text side is asked for guesses, by what their masks cost.
#include <algorithm>
#include <cmath>

#include "engine/speculation/draft_control.h"

namespace imp {
namespace {

// A run that is not asked for guesses is asked this many times every kTrialSteps outputs.
constexpr int kAskTrials = 4;
// After so many answers with guesses, one without shows what it costs.
constexpr int kMaxAskedInARow = 64;
// The highest price of a guess, in units of the wait for one mask. An answer may be late for reasons other than its
// guesses.
constexpr double kMaxPrice = 4;

}  // namespace

int DraftControl::n_to_ask(DraftHistory& history, int n_most) noexcept {
  const MaskCosts& masks = history.masks;
  const bool is_known = masks.is_known() && masks.n_since_plain() < kMaxAskedInARow && last_step_.n_outputs > 0 &&
                        costs_.is_known(last_step_.n_outputs);
  if (n_most <= 0 || !is_known || !may_draft(history) || !is_worth_asking(history)) return 0;
  const double unit = wait_and_step_ns(history);
  // What the first answer costs is only guessed.
  int n = masks_.has_asked() ? n_most : 1;
  const auto is_payable = [&] {
    const double lost = (masks.extra_ns(n, masks_) + max_extra_ns(last_step_, n)) / unit;
    return lost <= std::min(history.budget.left(), budget_.left());
  };
  while (n > 0 && !is_payable()) --n;
  return n;
}

bool DraftControl::is_worth_asking(DraftHistory& history) const noexcept {
  const MaskCosts& masks = history.masks;
  const StepShape& step = last_step_;
  const double n_guesses = masks.guesses_per_ask(masks_);
  const double rows_ns =
      costs_.step_ns(step.n_rows + static_cast<int>(std::ceil(n_guesses)), step.n_held) - plain_ns(step);
  const double lost = (masks.extra_ns(n_guesses, masks_) + rows_ns) / wait_and_step_ns(history);
  if (masks.right_per_ask(masks_) > lost) return true;
  ++history.n_not_asked;
  if (history.n_not_asked < kTrialSteps) return false;
  if (history.n_not_asked >= kTrialSteps + kAskTrials) history.n_not_asked = 0;
  return true;
}

// The time of an output without guesses.
double DraftControl::wait_and_step_ns(const DraftHistory& history) const noexcept {
  return history.masks.plain_ns() + plain_ns(last_step_);
}

int DraftControl::n_worth_masks(const DraftHistory& history, int drafter, std::span<const Guess> guesses) {
  const std::span<double> survivals = std::span(survivals_).first(guesses.size());
  find_survivals(drafter, history, guesses, survivals);
  const StepShape& step = last_step_;
  const double row_ns = costs_.step_ns(step.n_rows + 1, step.n_held) - plain_ns(step);
  const double mask_ns = history.masks.extra_ns(1, masks_) - history.masks.extra_ns(0, masks_);
  const double least = (row_ns + mask_ns) / wait_and_step_ns(history);
  const auto end = std::ranges::find_if(survivals, [least](double survival) { return survival < least; });
  return static_cast<int>(end - survivals.begin());
}

void DraftControl::add_wait(DraftHistory& history, int n_asked, int n_given, double wait_ns) noexcept {
  if (n_asked == 0) {
    history.masks.add_plain(wait_ns);
    masks_.add_plain(wait_ns);
    return;
  }
  if (!history.masks.is_known()) return;
  const double extra = std::clamp(wait_ns / history.masks.plain_ns() - 1, 0.0, kMaxPrice * (1 + n_given));
  history.masks.add_asked(n_given, extra);
  masks_.add_asked(n_given, extra);
  const double lost = extra * history.masks.plain_ns() / wait_and_step_ns(history);
  history.budget.add(0, 0, lost);
  budget_.add(0, 0, lost);
}

void DraftControl::add_answered(DraftHistory& history, int n_right) noexcept {
  history.masks.add_right(n_right);
  masks_.add_right(n_right);
}

}  // namespace imp
