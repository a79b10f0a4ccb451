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
  bool drawn = false;   // false: nothing was to be drawn here
  SampleResult result;
  std::vector<Candidate> candidates;
  std::vector<float> logits;
};

// The score of one token.
struct Score {
  Sequence* sequence = nullptr;
  int logits_row = -1;  // -1: the first token of a sequence, which has none
  std::int32_t token = 0;
  SampleResult result;
  std::vector<Candidate> candidates;
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
  // Evaluates the rows as one batch. Throws what the device throws; then draws() and scores() mean nothing.
  void evaluate(std::span<const PlannedRows> rows);

  // In the order of the rows: one for each sequence whose last row was evaluated, followed by its siblings.
  std::span<Draw> draws() noexcept { return draws_; }
  std::span<Score> scores() noexcept { return scores_; }

  const KvPool& pool() const noexcept { return *pool_; }
  int vocab_size() const noexcept { return forward_.vocab_size(); }
  std::int64_t forward_ns() const noexcept { return forward_ns_; }
  std::int64_t sample_ns() const noexcept { return sample_ns_; }
  // Of the batch that was evaluated last; nothing where it was not come to.
  const Interval& last_forward() const noexcept { return last_forward_; }
  const Interval& last_sample() const noexcept { return last_sample_; }

 private:
  void prepare();  // what the backend wants to have met
  void build_batch(std::span<const PlannedRows> rows);
  void add_rows(const PlannedRows& planned);
  void add_score(Sequence& sequence, int position, int logits_row);
  void add_draws(const PlannedRows& planned, int logits_row);
  void run_forward();
  void score();
  void sample();
  SampleRequest request(Draw& draw, const OutputMask* mask) const;
  void read_rows();

  Backend& backend_;
  ForwardPass& forward_;
  const Clock& clock_;
  std::unique_ptr<KvPool> pool_;
  TokenMask suppressed_;  // empty where nothing is
  std::int64_t forward_ns_ = 0;
  std::int64_t sample_ns_ = 0;
  Interval last_forward_;
  Interval last_sample_;

  std::vector<std::int32_t> tokens_;
  std::vector<std::int32_t> positions_;
  std::vector<SequenceRows> sequences_;
  std::vector<std::int32_t> logits_rows_;
  Rows logits_;

  std::vector<Draw> draws_;
  std::vector<SampleRequest> requests_;
  std::vector<SampleResult> results_;
  std::vector<Score> scores_;
  std::vector<ScoreRequest> score_requests_;
  std::vector<SampleResult> score_results_;
};

}  // namespace imp
