// Weighs guesses, tries what seemed not worth it, and reviews what sequences gained.
#include "engine/speculation/draft_control.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace imp {
namespace {

int n_chosen(std::span<const DraftOption> options) {
  return std::accumulate(options.begin(), options.end(), 0,
                         [](int n, const DraftOption& option) { return n + option.n_chosen; });
}

bool has_more(const DraftOption& option) {
  return option.n_chosen < static_cast<int>(option.guesses.size());
}

}  // namespace

void DraftControl::reserve(int max_options, int max_guesses) {
  max_guesses_ = static_cast<std::size_t>(max_guesses);
  survivals_.resize(static_cast<std::size_t>(max_options) * max_guesses_);
  choices_.reserve(static_cast<std::size_t>(max_options));
}

void DraftControl::set_prior(int drafter, int sureness, RightShares shares) {
  priors_[static_cast<std::size_t>(drafter)][static_cast<std::size_t>(sureness)] = shares;
}

void DraftControl::find_survivals(const DraftOption& option, std::span<double> into) const noexcept {
  const auto drafter = static_cast<std::size_t>(option.drafter);
  const Acceptance& own = option.history->acceptance[drafter];
  double survival = 1;
  for (std::size_t i = 0; i < into.size(); ++i) {
    const int sureness = std::min<int>(option.guesses[i].sureness, Acceptance::kClasses - 1);
    const RightShares& prior = priors_[drafter][static_cast<std::size_t>(sureness)];
    const double of_all = of_all_[drafter].share(sureness, i == 0, i == 0 ? prior.first : prior.later);
    survival *= own.share(sureness, i == 0, of_all);
    into[i] = survival;
  }
}

void DraftControl::weigh(std::span<DraftOption> options, const StepShape& step) {
  choices_.clear();
  std::span<double> unused = survivals_;
  for (const DraftOption& option : options) {
    IMP_CHECK(option.guesses.size() <= max_guesses_ && !unused.empty());
    const std::span<double> survivals = unused.first(option.guesses.size());
    unused = unused.subspan(max_guesses_);
    find_survivals(option, survivals);
    choices_.push_back({.survivals = survivals, .guess_cost = option.guess_cost});
  }
  choose_depths(choices_, step, costs_);
  for (std::size_t i = 0; i < options.size(); ++i) options[i].n_chosen = choices_[i].n_chosen;
}

void DraftControl::choose(std::span<DraftOption> options, const StepShape& step) {
  const bool has_prompts = step.n_rows > step.n_outputs;
  if (!has_prompts && !costs_.is_known(step.n_rows)) {
    for (DraftOption& option : options) option.n_chosen = 0;
    return;
  }
  weigh(options, step);
  for (DraftOption& option : options) {
    option.history->is_trial = false;
    if (has_more(option)) ++option.history->n_held_back;
  }
  try_one_more(options, step);
  set_price(options, step);
}

// All sequences share the trials of a time, so that many sequences do not spend more on them than one.
void DraftControl::try_one_more(std::span<DraftOption> options, const StepShape& step) {
  ++n_steps_without_trial_;
  DraftOption* longest = nullptr;
  for (DraftOption& option : options) {
    if (!has_more(option)) continue;
    const DraftHistory& history = *option.history;
    const bool is_due =
        history.n_repeats > 0 || (history.n_held_back >= kTrialSteps && n_steps_without_trial_ >= kTrialSteps);
    if (is_due && (longest == nullptr || history.n_held_back > longest->history->n_held_back)) longest = &option;
  }
  if (longest == nullptr || !may_add_row(options, step)) return;
  DraftHistory& history = *longest->history;
  if (history.n_repeats == 0) {
    history.n_repeats = longest->n_chosen == 0 ? kTrials : 1;
    history.n_held_back = 0;
    n_steps_without_trial_ = 0;
  }
  history.is_trial = true;
  ++longest->n_chosen;
}

bool DraftControl::may_add_row(std::span<const DraftOption> options, const StepShape& step) const noexcept {
  const int n_guesses = n_chosen(options) + 1;
  if (n_guesses > step.n_free) return false;
  const bool is_alone = step.n_rows == 1;
  return is_alone ||
         costs_.step_ns(step.n_rows + n_guesses, step.n_held) <= kMostDelay * costs_.step_ns(step.n_rows, step.n_held);
}

void DraftControl::set_price(std::span<const DraftOption> options, const StepShape& step) noexcept {
  const int n_guesses = n_chosen(options);
  const double plain = costs_.step_ns(step.n_rows, step.n_held);
  const double more = costs_.step_ns(step.n_rows + n_guesses, step.n_held) - plain;
  price_ = n_guesses > 0 ? more / n_guesses * step.n_outputs / plain : 0;
}

void DraftControl::add_round(DraftHistory& history, int drafter, std::span<const Guess> verified, int n_right) {
  history.n_singles = 0;
  const auto index = static_cast<std::size_t>(drafter);
  const auto n_tried = std::min(verified.size(), static_cast<std::size_t>(n_right) + 1);
  for (std::size_t i = 0; i < n_tried; ++i) {
    const bool is_right = i < static_cast<std::size_t>(n_right);
    history.acceptance[index].add(verified[i].sureness, i == 0, is_right);
    of_all_[index].add(verified[i].sureness, i == 0, is_right);
  }
  if (history.is_trial) {
    const bool is_right = n_right == static_cast<int>(verified.size());
    history.n_repeats = is_right ? history.n_repeats - 1 : 0;
    history.is_trial = false;
  }
  review(history, verified.size(), n_right);
}

void DraftControl::review(DraftHistory& history, std::size_t n_guesses, int n_right) const noexcept {
  ++history.n_rounds;
  history.n_earned += 1 + n_right;
  history.n_paid += 1 + price_ * static_cast<double>(n_guesses);
  if (history.n_rounds < kReviewRounds) return;
  if (history.n_earned < kLeastGain * history.n_paid) {
    constexpr int kLongestOff = 1 << 20;
    history.n_off = history.next_off;
    history.next_off = std::min(2 * history.next_off, kLongestOff);
  }
  history.n_rounds = 0;
  history.n_earned = history.n_paid = 0;
}

void DraftControl::add_single(DraftHistory& history) noexcept {
  if (history.n_off > 0) --history.n_off;
  ++history.n_singles;
}

}  // namespace imp
