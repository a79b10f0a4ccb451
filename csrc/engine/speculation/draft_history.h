// What the control of guesses knows of a sequence.
#pragma once

#include <array>

#include "engine/speculation/acceptance.h"
#include "engine/speculation/draft_budget.h"
#include "engine/speculation/guess.h"
#include "engine/speculation/mask_costs.h"

namespace imp {

// Assign a fresh one to forget all.
struct DraftHistory {
  std::array<Acceptance, kMaxDrafters> acceptance{};
  DraftBudget budget;
  MaskCosts masks;  // of a constrained run
  // Of the rounds since the last review: outputs, and how many their time was worth without guesses.
  int n_rounds = 0;
  double n_earned = 0;
  double n_paid = 0;
  int backoff_left = 0;           // outputs until it may draft again
  int next_backoff = 256;         // how long it stops the next time
  int n_steps_without_trial = 0;  // steps since it last tried more guesses than seemed worth it
  bool is_trial = false;          // it tries one more in this step
  int n_since_round = 0;          // outputs since its last round
  int n_trials_left = 0;          // trials in the next steps, as long as they are right
  int n_not_asked = 0;            // answers of the text side since it was last asked for guesses
};

}  // namespace imp
