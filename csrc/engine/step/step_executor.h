// Runs one step on the device: builds the batch, runs the forward pass, scores and samples tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "base/clock.h"
#include "engine/schedule/scheduler.h"
#include "engine/step/state_saves.h"
#include "model/forward_pass.h"

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

struct StepLimits {
  int max_rows = 0;
  int max_logits_rows = 0;
  int max_running = 0;
};

// The only caller of the forward pass and of the sampler. It changes no sequence: a step that fails has only written
// to cache positions that no sequence holds yet. It allocates only for candidates, logits and scores.
class StepExecutor {
 public:
  StepExecutor(Backend& backend, ForwardPass& forward, StateSaves& states, const KvBlocks& blocks,
               const StepLimits& limits, TokenMask suppressed, const Clock& clock);

  // Makes the copies in order, and removes each one made from `copies`, even if a later one throws.
  void copy_blocks(std::vector<BlockCopy>& copies);
  // Runs the rows as one batch and samples. Throws the device's errors; the contents of `step` are then undefined.
  void begin(std::span<const PlannedRows> rows, Step& step);
  // Waits for the results of a step in flight. Call it in the order in which the steps began.
  void finish(Step& step);

  bool runs_ahead() const noexcept { return backend_.runs_ahead(); }
  std::optional<StepGraphCounts> graphs() const noexcept { return backend_.step_graphs(); }
  const KvPool& pool() const noexcept { return *pool_; }
  int vocab_size() const noexcept { return forward_.vocab_size(); }
  std::int64_t forward_ns() const noexcept { return forward_ns_; }
  std::int64_t sample_ns() const noexcept { return sample_ns_; }

 private:
  void prepare();  // runs the batch sizes that the backend captures ahead of time
  void run(std::span<const PlannedRows> rows, Step& step);
  void build_batch(std::span<const PlannedRows> rows, Step& step);
  void add_rows(const PlannedRows& planned, Step& step);
  Interval run_forward();
  void score(Step& step);
  void sample(Step& step);
  void add_requests(Step& step) const;
  SampleRequest request(Draw& draw, const OutputMask* mask) const;
  void read_rows(Step& step);

  Backend& backend_;
  ForwardPass& forward_;
  StateSaves& states_;
  const Clock& clock_;
  std::unique_ptr<KvPool> pool_;
  TokenMask suppressed_;  // empty: no token is suppressed
  std::int64_t forward_ns_ = 0;
  std::int64_t sample_ns_ = 0;

  std::vector<std::int32_t> tokens_;
  std::vector<std::int32_t> positions_;
  std::vector<SequenceRows> sequences_;
  std::vector<std::int32_t> logits_rows_;
  Rows logits_;
  std::vector<ScoreRequest> score_requests_;
  std::vector<SampleResult> score_results_;
};

}  // namespace imp
