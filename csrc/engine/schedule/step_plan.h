// What a step is going to evaluate.
#pragma once

#include <vector>

#include "engine/kv/kv_blocks.h"

namespace imp {

struct Sequence;

// Rows of one sequence in a step: its tokens from `held` on.
struct PlannedRows {
  Sequence* sequence = nullptr;
  int n_rows = 0;
  bool last = false;  // the last of the sequence's tokens is among them: outputs are drawn
  int n_guesses = 0;  // the last rows that evaluate guesses; an output is drawn after each, and before the first
  int drafter = 0;    // index of the drafter that made them
  int round = 0;      // index by which Speculation knows them
};

// A run that is refused because blocks are lacking.
struct Refusal {
  Sequence* sequence = nullptr;
  int needed = 0;
  int available = 0;
};

struct StepPlan {
  std::vector<PlannedRows> rows;
  std::vector<BlockCopy> copies;    // to be made first, in order
  std::vector<Sequence*> admitted;  // scheduled for the first time
  std::vector<Refusal> refused;     // no longer scheduled
  std::vector<Sequence*> evicted;   // idle sessions that lost their blocks and are closed
  int n_decode_rows = 0;
  int n_prefill_rows = 0;
  int n_guess_rows = 0;
  int n_logits_rows = 0;
  int n_rows() const noexcept { return n_decode_rows + n_prefill_rows + n_guess_rows; }
  void clear() {
    rows.clear();
    copies.clear();
    admitted.clear();
    refused.clear();
    evicted.clear();
    n_decode_rows = 0;
    n_prefill_rows = 0;
    n_guess_rows = 0;
    n_logits_rows = 0;
  }
};

}  // namespace imp
