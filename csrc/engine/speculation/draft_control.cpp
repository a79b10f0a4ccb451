// Weighs guesses, tries what seemed not worth it, and reviews what sequences gained.
#include "engine/speculation/draft_control.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace imp {
namespace {

// The time of choosing and making the guesses of a step counts as at most so many steps without guesses.
constexpr double kMaxDraftSteps = 4;

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

void DraftControl::set_prior(int drafter, int confidence, RightShares shares) {
  priors_[static_cast<std::size_t>(drafter)][static_cast<std::size_t>(confidence)] = shares;
}

void DraftControl::find_survivals(int drafter, const DraftHistory& history, std::span<const Guess> guesses,
                                  std::span<double> into) const noexcept {
  const auto index = static_cast<std::size_t>(drafter);
  const Acceptance& own = history.acceptance[index];
  double survival = 1;
  for (std::size_t i = 0; i < into.size(); ++i) {
    const int confidence = std::min<int>(guesses[i].confidence, Acceptance::kClasses - 1);
    const RightShares& prior = priors_[index][static_cast<std::size_t>(confidence)];
    const double of_all = of_all_[index].share(confidence, i == 0, i == 0 ? prior.first : prior.later);
    survival *= own.share(confidence, i == 0, of_all);
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
    find_survivals(option.drafter, *option.history, option.guesses, survivals);
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
  drop_starts(options, step);
  keep_to_budgets(options, step);
  for (DraftOption& option : options) {
    option.history->is_trial = false;
    if (has_more(option)) ++option.history->n_steps_without_trial;
  }
  try_one_more(options, step);
}

// The drafters that have to evaluate something first begin where this is expected to pay before the sequence ends, and
// where the server can pay it if it does not.
void DraftControl::drop_starts(std::span<DraftOption> options, const StepShape& step) noexcept {
  const double plain = plain_ns(step);
  for (std::size_t i = 0; i < options.size(); ++i) {
    DraftOption& option = options[i];
    if (option.start_cost <= 0 || option.n_chosen == 0) continue;
    const auto n = static_cast<std::size_t>(option.n_chosen);
    const std::span<const double> survivals = choices_[i].survivals.first(n);
    const double n_outputs = std::accumulate(survivals.begin(), survivals.end(), 1.0);
    const double round_ns = costs_.step_ns(step.n_rows + option.n_chosen, step.n_held) +
                            option.guess_cost * option.n_chosen * one_row_ns(step);
    const double saved = (1 - round_ns / plain / n_outputs) * option.n_ahead;
    const double start = option.start_cost * one_row_ns(step) / plain;
    if (saved < kPayback * start || budget_.left() < start * step.n_outputs) option.n_chosen = 0;
  }
}

// Takes guesses away until all can be paid, even if none is right.
void DraftControl::keep_to_budgets(std::span<DraftOption> options, const StepShape& step) noexcept {
  while (DraftOption* option = over_budget(options, step)) --option->n_chosen;
}

// The sequence that is furthest over its budget or, if only the server's is exceeded, the one with the most guesses.
// Null if all can be paid.
DraftOption* DraftControl::over_budget(std::span<DraftOption> options, const StepShape& step) const noexcept {
  const int n_guesses = n_chosen(options);
  if (n_guesses == 0) return nullptr;
  const double plain = plain_ns(step);
  const double row_loss = max_extra_ns(step, n_guesses) / n_guesses / plain;
  const double make_loss = one_row_ns(step) / plain;
  DraftOption* furthest = nullptr;
  DraftOption* longest = nullptr;
  double max_debt = 0, total = 0;
  for (DraftOption& option : options) {
    if (option.n_chosen == 0) continue;
    const double loss = option.n_chosen * (row_loss + option.guess_cost * make_loss);
    const double debt = loss - option.history->budget.left();
    total += loss;
    if (longest == nullptr || option.n_chosen > longest->n_chosen) longest = &option;
    if (debt <= max_debt) continue;
    furthest = &option;
    max_debt = debt;
  }
  if (furthest != nullptr) return furthest;
  return total * step.n_outputs > budget_.left() ? longest : nullptr;
}

// All sequences share the trials of a time, so that many sequences do not spend more on them than one.
void DraftControl::try_one_more(std::span<DraftOption> options, const StepShape& step) {
  ++n_steps_without_trial_;
  DraftOption* longest = nullptr;
  for (DraftOption& option : options) {
    if (!has_more(option)) continue;
    const DraftHistory& history = *option.history;
    const bool is_due = history.n_trials_left > 0 ||
                        (history.n_steps_without_trial >= kTrialSteps && n_steps_without_trial_ >= kTrialSteps);
    if (is_due && (longest == nullptr || history.n_steps_without_trial > longest->history->n_steps_without_trial))
      longest = &option;
  }
  if (longest == nullptr || !may_add_row(options, *longest, step)) return;
  DraftHistory& history = *longest->history;
  if (history.n_trials_left == 0) {
    history.n_trials_left = longest->n_chosen == 0 ? kTrials : 1;
    history.n_steps_without_trial = 0;
    n_steps_without_trial_ = 0;
  }
  history.is_trial = true;
  ++longest->n_chosen;
}

bool DraftControl::may_add_row(std::span<DraftOption> options, DraftOption& option,
                               const StepShape& step) const noexcept {
  const int n_guesses = n_chosen(options) + 1;
  const double plain = plain_ns(step);
  if (n_guesses > step.n_free) return false;
  const bool is_alone = step.n_rows == 1;
  if (!is_alone && costs_.step_ns(step.n_rows + n_guesses, step.n_held) > kMaxDelay * plain) return false;
  const double start = option.start_cost * one_row_ns(step) / plain;
  if (budget_.left() < start * step.n_outputs || option.n_ahead < kPayback * start) return false;
  if (start > kMaxTrialStart * option.n_had) return false;
  ++option.n_chosen;
  const bool is_payable = over_budget(options, step) == nullptr;
  --option.n_chosen;
  return is_payable;
}

double DraftControl::plain_ns(const StepShape& step) const noexcept {
  return costs_.baseline_ns(step.n_rows, step.n_held);
}

double DraftControl::one_row_ns(const StepShape& step) const noexcept {
  return costs_.step_ns(1, step.n_held / std::max(1, step.n_outputs));
}

// Beside rows of prompts, what a row of a guess costs is not measured.
double DraftControl::max_extra_ns(const StepShape& step, int n_guesses) const noexcept {
  const bool has_prompts = step.n_rows > step.n_outputs;
  if (has_prompts) return n_guesses * costs_.max_row_ns(step.n_held / std::max(1, step.n_outputs));
  return std::max(0.0, costs_.max_ns(step.n_rows + n_guesses, step.n_held) - plain_ns(step));
}

// What the guesses of a step added to its time. A step that was interrupted does not count as a cost of guesses.
double DraftControl::extra_ns(const StepShape& step, int n_guesses, double work_ns) const noexcept {
  const bool has_prompts = step.n_rows > step.n_outputs;
  if (has_prompts || !std::isfinite(work_ns)) return max_extra_ns(step, n_guesses);
  const double plain = plain_ns(step);
  const double expected = costs_.step_ns(step.n_rows + n_guesses, step.n_held);
  const double most = std::max(RowCosts::kMaxChange * expected, plain + max_extra_ns(step, n_guesses));
  return std::clamp(work_ns, plain, std::max(plain, most)) - plain;
}

void DraftControl::add_step(const StepShape& step, int n_guesses, int n_right, const StepTimes& times) noexcept {
  const bool has_prompts = step.n_rows > step.n_outputs;
  // A step without guesses says what it costs. One with guesses is judged by what was known before it.
  const bool is_plain = !has_prompts && n_guesses == 0 && !times.is_held_back;
  if (is_plain) costs_.add(step.n_rows, step.n_held, times.work_ns);
  n_outputs_ = std::max(1, step.n_outputs);
  plain_ns_ = plain_ns(step);
  one_row_ns_ = one_row_ns(step);
  guess_ns_ = n_guesses > 0 ? extra_ns(step, n_guesses, times.work_ns) / n_guesses : 0;
  const bool is_late = times.is_held_back && n_guesses == 0 && costs_.is_measured();
  held_back_ns_ = is_late ? std::clamp(times.work_ns, plain_ns_, 2 * plain_ns_) - plain_ns_ : 0;
  // If the system interrupted the thread, the measured time is meaningless, so it is clamped.
  const double draft_ns = std::clamp(times.draft_ns, 0.0, kMaxDraftSteps * plain_ns_);
  const double lost_ns = costs_.is_measured() ? guess_ns_ * n_guesses + held_back_ns_ + draft_ns : 0;
  budget_.add(step.n_outputs + n_right, n_right, lost_ns / plain_ns_ * n_outputs_);
  if (draft_ns > 0 && costs_.is_measured()) {
    drafting_loss_ += (std::min(draft_ns / plain_ns_, 1.0) * n_outputs_ - drafting_loss_) / 4;
  }
  if (!has_prompts && n_guesses > 0) costs_.add(step.n_rows + n_guesses, step.n_held, times.work_ns);
  if (step.n_outputs > 0) last_step_ = {.n_outputs = step.n_outputs, .n_rows = step.n_outputs, .n_held = step.n_held};
}

void DraftControl::charge(DraftHistory& history, int n_guesses, int n_right, double guess_cost) const noexcept {
  const double lost_ns = (guess_ns_ + guess_cost * one_row_ns_) * n_guesses + held_back_ns_;
  const double lost = costs_.is_measured() ? lost_ns / plain_ns_ : 0;
  history.budget.add(1 + n_right, n_right, lost);
  if (n_guesses > 0) review(history, 1 + n_right, 1 + lost * n_outputs_);
}

void DraftControl::add_round(DraftHistory& history, int drafter, std::span<const Guess> verified, int n_right) {
  history.n_since_round = 0;
  const auto index = static_cast<std::size_t>(drafter);
  const auto n_tried = std::min(verified.size(), static_cast<std::size_t>(n_right) + 1);
  for (std::size_t i = 0; i < n_tried; ++i) {
    const bool is_right = i < static_cast<std::size_t>(n_right);
    history.acceptance[index].add(verified[i].confidence, i == 0, is_right);
    of_all_[index].add(verified[i].confidence, i == 0, is_right);
  }
  if (!history.is_trial) return;
  const bool is_right = n_right == static_cast<int>(verified.size());
  history.n_trials_left = is_right ? history.n_trials_left - 1 : 0;
  history.is_trial = false;
}

void DraftControl::review(DraftHistory& history, int n_outputs, double n_paid) noexcept {
  ++history.n_rounds;
  history.n_earned += n_outputs;
  history.n_paid += n_paid;
  if (history.n_rounds < kReviewRounds) return;
  if (history.n_earned < kMinGain * history.n_paid) {
    constexpr int kMaxBackoff = 1 << 20;
    history.backoff_left = history.next_backoff;
    history.next_backoff = std::min(2 * history.next_backoff, kMaxBackoff);
  }
  history.n_rounds = 0;
  history.n_earned = history.n_paid = 0;
}

void DraftControl::add_single(DraftHistory& history) noexcept {
  if (history.backoff_left > 0) --history.backoff_left;
  ++history.n_since_round;
}

}  // namespace imp
