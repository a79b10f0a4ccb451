// Chooses how many guesses each sequence of a step gets.
#pragma once

#include <span>

#include "engine/speculation/row_costs.h"

namespace imp {

// A sequence that has guesses, or could have them.
struct DepthChoice {
  // For each possible guess the probability that it and all guesses before it are right. Does not increase.
  std::span<const double> survivals;
  double guess_cost = 0;  // of making one guess, in units of a step with one row; 0 if it is made already
  int n_chosen = 0;       // output: the first n_chosen guesses are verified
};

// A planned step without guesses.
struct StepShape {
  int n_outputs = 0;  // decode rows: each draws an output
  int n_rows = 0;     // decode rows and prefill rows
  double n_held = 0;  // tokens that all its sequences hold in the cache
  int n_free = 0;     // rows left for guesses
};

// Guesses may make a step at most this many times as long, if it also has sequences without guesses or prompts.
inline constexpr double kMaxDelay = 1.25;

// Chooses the guesses that give the most expected outputs per unit of time. The best n guesses are those that most
// likely survive, so each n is compared once.
void choose_depths(std::span<DepthChoice> choices, const StepShape& step, const RowCosts& costs);

}  // namespace imp
