// The measurements of a sequence on which DraftControl decides.
#pragma once

#include <array>

#include "engine/data/guess.h"
#include "engine/sequence/acceptance.h"
#include "engine/sequence/draft_budget.h"
#include "engine/sequence/mask_costs.h"

namespace imp {

// Assign DraftHistory{} to reset it.
struct DraftHistory {
  std::array<Acceptance, kMaxDrafters> acceptance{};
  DraftBudget budget;
  MaskCosts masks;  // of a constrained run
  // Since the last review:
  int n_rounds = 0;
  double n_earned = 0;            // outputs of these rounds
  double n_paid = 0;              // outputs that would have taken the same time without guesses
  int backoff_left = 0;           // outputs until the sequence may draft again
  int next_backoff = 256;         // length of the next pause, which doubles each time
  int n_steps_without_trial = 0;  // steps that left out guesses, since the last trial
  bool is_trial = false;          // this step verifies one guess more than seems worth it
  int n_since_round = 0;          // outputs since its last round
  int n_trials_left = 0;          // further trials, as long as they are right
  int n_not_asked = 0;            // answers of the text side since it was last asked for guesses
};

}  // namespace imp
