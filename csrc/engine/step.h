// One step on the device: the batch is built, evaluated, scored and drawn from.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "engine/scheduler.h"
#include "model/forward_pass.h"

namespace imp {

// What came of one sequence's last row.
struct Draw {
  Sequence* sequence = nullptr;
  int logits_row = -1;  // of the step; -1: none was needed
  int request = -1;     // of the step's; -1: nothing was to be drawn here
  SampleResult result;
  std::vector<Candidate> candidates;
  std::vector<float> logits;

  bool is_drawn() const noexcept { return request >= 0; }
};

// The score of one token.
struct Score {
  Sequence* sequence = nullptr;
  int logits_row = -1;  // -1: the first token of a sequence, which has none
  std::int32_t token = 0;
  SampleResult result;
  std::vector<Candidate> candidates;
};

// A step that was begun: its rows, and what comes of them. Two live in the loop and are used again and again.
struct Evaluation {
  // The rows, and how to tell that their sequence is still where it was.
  struct Row {
    PlannedRows planned;
    SequenceId id = 0;
    Ticket ticket = 0;
    int first_position = 0;
    int n_draws = 0;
  };
  std::vector<Row> rows;
  std::vector<Draw> draws;  // in the order of the rows: for a last row its sequence's, followed by its siblings'
  std::vector<Score> scores;
  std::vector<SampleRequest> requests;  // of the draws that are drawn
  std::vector<SampleResult> results;
  bool is_under_way = false;  // the device knows the results, and nobody else yet

  std::int64_t begun_ns = 0;
  Interval forward;  // of the batch that was evaluated last; nothing where it was not come to
  Interval sample;
  int n_decode_rows = 0;
  int n_prefill_rows = 0;
  bool is_recorded = false;  // a profile was under way when it was begun

  void reserve(std::size_t max_running);
  void clear() noexcept;
};

struct StepLimits {
  int max_rows = 0;
  int max_logits_rows = 0;
  int max_running = 0;
};

// The only caller of the forward pass and of the sampler. It changes no sequence: until the engine has completed a
// step, nothing has happened but writes to positions that nobody holds. Allocates only for what was asked for beside
// tokens: candidates, logits, scores.
class Step {
 public:
  using Clock = std::function<std::int64_t()>;

  Step(Backend& backend, ForwardPass& forward, int n_blocks, const StepLimits& limits, TokenMask suppressed,
       const Clock& clock);

  // Makes the copies, in order; those that were made are removed even where it throws.
  void copy_blocks(std::vector<BlockCopy>& copies);
  // Evaluates the rows as one batch, and draws. Throws what the device throws; then `into` means nothing.
  void begin(std::span<const PlannedRows> rows, Evaluation& into);
  // Fills in what is under way, of evaluations in the order in which they were begun.
  void finish(Evaluation& begun);

  bool runs_ahead() const noexcept { return backend_.runs_ahead(); }
  std::optional<StepGraphCounts> graphs() const noexcept { return backend_.step_graphs(); }
  const KvPool& pool() const noexcept { return *pool_; }
  int vocab_size() const noexcept { return forward_.vocab_size(); }
  std::int64_t forward_ns() const noexcept { return forward_ns_; }
  std::int64_t sample_ns() const noexcept { return sample_ns_; }

 private:
  void prepare();  // what the backend wants to have met
  void build_batch(std::span<const PlannedRows> rows, Evaluation& into);
  void add_rows(const PlannedRows& planned, Evaluation& into);
  Interval run_forward();
  void score(Evaluation& of);
  void sample(Evaluation& of);
  void add_requests(Evaluation& of) const;
  SampleRequest request(Draw& draw, const OutputMask* mask) const;
  void read_rows(Evaluation& of);

  Backend& backend_;
  ForwardPass& forward_;
  const Clock& clock_;
  std::unique_ptr<KvPool> pool_;
  TokenMask suppressed_;  // empty where nothing is
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
