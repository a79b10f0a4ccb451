// Runs one step on the device: builds the batch, runs the forward pass, scores and samples tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "base/clock.h"
#include "engine/data/token_mask.h"
#include "engine/kv/kv_blocks.h"
#include "engine/sequence/sequence.h"
#include "engine/step/media_encodings.h"
#include "engine/step/state_saves.h"
#include "engine/step/step.h"
#include "engine/step/text_vectors.h"
#include "model/forward_pass.h"

namespace imp {

struct StepLimits {
  int max_rows = 0;
  int max_logits_rows = 0;
  int max_running = 0;
};

// The only code that runs the model's forward pass. Drafters that compute run their own. It changes no sequence: a step
// that fails has only written to cache positions that no sequence holds yet. It allocates only for candidates, logits,
// vectors and scores.
class StepExecutor {
 public:
  // media: of sequences that have some; null: no sequence has.
  StepExecutor(Backend& backend, ForwardPass& forward, StateSaves& states, const KvBlocks& blocks,
               const StepLimits& limits, TokenMask suppressed, const Clock& clock, MediaEncodings* media = nullptr);

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
  void place_media(const PlannedRows& planned, std::size_t first_row);
  Interval run_forward();
  void score(Step& step);
  void sample(Step& step);
  void add_requests(Step& step) const;
  void assign_results(Step& step);
  void replace(Draw& draw, std::int32_t token);
  SampleRequest request(Draw& draw, const OutputMask* mask) const;
  void read_rows(Step& step);

  Backend& backend_;
  ForwardPass& forward_;
  StateSaves& states_;
  const Clock& clock_;
  MediaEncodings* media_;
  std::unique_ptr<KvPool> pool_;
  TokenMask suppressed_;  // empty: no token is suppressed
  std::int64_t forward_ns_ = 0;
  std::int64_t sample_ns_ = 0;

  std::vector<std::int32_t> tokens_;
  std::vector<std::int32_t> positions_;
  std::vector<SequenceRows> sequences_;
  std::vector<std::int32_t> logits_rows_;
  std::vector<PlacedRows> placed_;
  std::vector<std::int32_t> ends_;    // of the rows of sequences with atomic spans
  std::vector<std::int32_t> starts_;  // of the rows of sparse sequences
  TextVectors vectors_;
  std::vector<const Sequence*> of_sequences_;  // whose rows they are
  Rows logits_;
  std::vector<ScoreRequest> score_requests_;
  std::vector<SampleResult> score_results_;
};

}  // namespace imp
