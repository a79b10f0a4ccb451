// Adds guesses by their survival and keeps the number with the most outputs in a time.
#include "engine/speculation/depth.h"

#include <algorithm>

namespace imp {
namespace {

// The rate is that of the best choice so far. With it, guesses of different cost are compared ("Dinkelbach's
// algorithm"). A few passes suffice, and one if guesses cost nothing.
constexpr int kMaxPasses = 6;

struct Progress {
  double outputs = 0;
  double guess_ns = 0;
  int n_guesses = 0;
  int n_drafting = 0;
};

// Returns null if there is no guess left.
DepthChoice* next_guess(std::span<DepthChoice> choices, double ns_per_cost, double rate) {
  DepthChoice* best = nullptr;
  double best_worth = 0;
  for (DepthChoice& choice : choices) {
    if (choice.n_chosen == static_cast<int>(choice.survivals.size())) continue;
    const double worth =
        choice.survivals[static_cast<std::size_t>(choice.n_chosen)] - rate * choice.guess_cost * ns_per_cost;
    if (best != nullptr && worth <= best_worth) continue;
    best = &choice;
    best_worth = worth;
  }
  return best;
}

void add_guess(DepthChoice& choice, double ns_per_cost, Progress& progress) {
  progress.outputs += choice.survivals[static_cast<std::size_t>(choice.n_chosen)];
  progress.guess_ns += choice.guess_cost * ns_per_cost;
  progress.n_drafting += choice.n_chosen == 0 ? 1 : 0;
  ++progress.n_guesses;
  ++choice.n_chosen;
}

}  // namespace

void choose_depths(std::span<DepthChoice> choices, const StepShape& step, const RowCosts& costs) {
  const double plain_ns = costs.step_ns(step.n_rows, step.n_held);
  const double one_row_ns = costs.step_ns(1, step.n_outputs > 0 ? step.n_held / step.n_outputs : 0);
  const double plain_rate = step.n_outputs / plain_ns;
  double best_rate = plain_rate;
  int n_best = 0;
  double order_rate = best_rate;  // by which the best choice was found
  for (int pass = 0; pass < kMaxPasses; ++pass) {
    const double rate_before = best_rate;
    for (DepthChoice& choice : choices) choice.n_chosen = 0;
    Progress progress{.outputs = 1.0 * step.n_outputs};
    while (progress.n_guesses < step.n_free) {
      DepthChoice* next = next_guess(choices, one_row_ns, rate_before);
      if (next == nullptr) break;
      add_guess(*next, one_row_ns, progress);
      const double ns = costs.step_ns(step.n_rows + progress.n_guesses, step.n_held) + progress.guess_ns;
      const bool others_wait = progress.n_drafting < step.n_outputs || step.n_rows > step.n_outputs;
      if (others_wait && ns > kMaxDelay * plain_ns) continue;
      if (progress.outputs / ns <= best_rate) continue;
      best_rate = progress.outputs / ns;
      n_best = progress.n_guesses;
      order_rate = rate_before;
    }
    if (best_rate <= rate_before) break;
  }
  for (DepthChoice& choice : choices) choice.n_chosen = 0;
  Progress progress;
  for (int i = 0; i < n_best; ++i) add_guess(*next_guess(choices, one_row_ns, order_rate), one_row_ns, progress);
}

}  // namespace imp
