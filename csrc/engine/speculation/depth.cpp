// Adds guesses in descending worth, and keeps the number of them with the most outputs per unit of time.
#include "engine/speculation/depth.h"

#include <algorithm>

namespace imp {
namespace {

// A guess is worth the outputs that it is expected to add, minus those that its cost would give at the rate of the best
// choice so far. So guesses of different cost can be compared ("Dinkelbach's algorithm"). A few passes suffice, and one
// if guesses cost nothing.
constexpr int kMaxPasses = 6;

// The guesses added so far.
struct Progress {
  double outputs = 0;   // expected from the step
  double guess_ns = 0;  // for making the guesses
  int n_guesses = 0;
  int n_drafting = 0;  // sequences with at least one guess
};

// The best number of guesses so far.
struct Best {
  double rate = 0;  // outputs per nanosecond
  int n_guesses = 0;
  double order_rate = 0;  // the rate at which the guesses were ordered
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

void clear(std::span<DepthChoice> choices) {
  for (DepthChoice& choice : choices) choice.n_chosen = 0;
}

// One pass: adds guesses in the order of their worth at `rate`, and compares each number of them with the best.
void run_pass(std::span<DepthChoice> choices, const StepShape& step, const RowCosts& costs, double one_row_ns,
              double rate, Best& best) {
  const double plain_ns = costs.step_ns(step.n_rows, step.n_held);
  clear(choices);
  Progress progress{.outputs = 1.0 * step.n_outputs};
  while (progress.n_guesses < step.n_free) {
    DepthChoice* next = next_guess(choices, one_row_ns, rate);
    if (next == nullptr) return;
    add_guess(*next, one_row_ns, progress);
    const double ns = costs.step_ns(step.n_rows + progress.n_guesses, step.n_held) + progress.guess_ns;
    // Sequences without guesses, and prompts, only wait longer.
    const bool others_wait = progress.n_drafting < step.n_outputs || step.n_rows > step.n_outputs;
    if (others_wait && ns > kMaxDelay * plain_ns) continue;
    if (progress.outputs / ns <= best.rate) continue;
    best = {.rate = progress.outputs / ns, .n_guesses = progress.n_guesses, .order_rate = rate};
  }
}

}  // namespace

void choose_depths(std::span<DepthChoice> choices, const StepShape& step, const RowCosts& costs) {
  const double one_row_ns = costs.step_ns(1, step.n_outputs > 0 ? step.n_held / step.n_outputs : 0);
  const double plain_rate = step.n_outputs / costs.step_ns(step.n_rows, step.n_held);
  Best best{.rate = plain_rate, .n_guesses = 0, .order_rate = plain_rate};
  for (int pass = 0; pass < kMaxPasses; ++pass) {
    const double rate = best.rate;
    run_pass(choices, step, costs, one_row_ns, rate, best);
    if (best.rate <= rate) break;
  }
  clear(choices);
  Progress progress;
  for (int i = 0; i < best.n_guesses; ++i) {
    add_guess(*next_guess(choices, one_row_ns, best.order_rate), one_row_ns, progress);
  }
}

}  // namespace imp
