// Chooses how many guesses each sequence of a step gets.
#pragma once

#include <span>

#include "engine/speculation/row_costs.h"

namespace imp {

// A sequence that has guesses, or could have them.
struct DepthChoice {
  // For each guess that is possible: the probability that it and all guesses before it are right. Never rises.
  std::span<const double> survivals;
  double guess_cost = 0;  // of making one guess, in steps of one row; 0 if it is made already
  int n_chosen = 0;       // the answer: the first n_chosen guesses
};

// A planned step without guesses.
struct StepShape {
  int n_outputs = 0;  // rows that draw
  int n_rows = 0;     // and those of prompts
  double n_held = 0;  // tokens in the cache of all its sequences
  int n_free = 0;     // guesses for which there are rows
};

// A sequence that does not draft waits at most this much longer for its next token.
inline constexpr double kMaxDelay = 1.25;

// Chooses the guesses with the most expected outputs in the time of the step. The best guesses of any number are those
// that most likely survive, so each number of guesses is compared once.
void choose_depths(std::span<DepthChoice> choices, const StepShape& step, const RowCosts& costs);

}  // namespace imp
