// A step: its rows, and what they draw.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/attention.h"
#include "backend/sampler.h"
#include "engine/data/events.h"
#include "engine/schedule/step_plan.h"

namespace imp {

// The outcome of a row that draws: a sequence's last row, and those before guesses.
struct Draw {
  Sequence* sequence = nullptr;
  int n_guesses_before = 0;  // it counts only if so many guesses of the sequence are right
  std::int32_t guess = -1;   // the token of the sequence's next row, which assumes that it is drawn here; -1: none
  int logits_row = -1;       // row in the step's logits; -1: no logits were needed
  int request = -1;          // index in Step::requests; -1: nothing is drawn here
  SampleResult result;
  std::vector<Candidate> candidates;
  std::vector<float> logits;
  std::vector<float> vector;  // of the text, if the run wants one

  bool is_drawn() const noexcept { return request >= 0; }
};

// The score of one token.
struct Score {
  Sequence* sequence = nullptr;
  int logits_row = -1;  // -1: the first token of a sequence has no score
  std::int32_t token = 0;
  SampleResult result;
  std::vector<Candidate> candidates;
};

// Rows of one sequence in a step, and the values by which the loop later sees whether the sequence has changed.
struct StepRow {
  PlannedRows planned;
  SequenceId id = 0;
  Ticket ticket = 0;
  int first_position = 0;
  int first_row = 0;  // in the batch
  int n_draws = 0;
  int n_right = 0;  // guesses that are right, once the step is completed
  // Of models with a recurrent state.
  std::int32_t state = kNoSlot;           // the slot with the state after all rows
  bool is_snapshot = false;               // it is kept as a snapshot
  std::span<const StateSave> saves = {};  // in Step::saves: snapshots, then `state`
};

// A step that has started: its rows and its results. The loop reuses two of them.
struct Step {
  std::vector<StepRow> rows;
  std::vector<StateSave> saves;
  std::vector<Draw> draws;  // in the order of the rows; a sequence's draws, then its siblings'
  std::vector<Score> scores;
  std::vector<SampleRequest> requests;  // one for each draw that is_drawn()
  std::vector<SampleResult> results;
  bool is_in_flight = false;  // the device has not returned the results yet

  std::int64_t begun_ns = 0;
  Interval forward;  // of the last batch; empty if the step failed before it
  Interval sample;
  int n_decode_rows = 0;
  int n_prefill_rows = 0;
  int n_guess_rows = 0;
  bool is_held_back = false;  // because of guesses it waited for the step before it
  bool is_recorded = false;   // a profile was running when the step began

  void reserve(std::size_t max_running, std::size_t max_draws, std::size_t max_saves);
  void clear() noexcept;
};

}  // namespace imp
