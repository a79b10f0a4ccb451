// Runs the steps of a draft model, for drafting and for scoring prompts.
#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "engine/speculation/shadow_sequences.h"
#include "engine/step/step_executor.h"

namespace imp {

struct DraftModelOptions {
  int n_blocks = 0;     // of its cache
  int max_context = 0;  // no position at or beyond it is evaluated
  int max_running = 0;  // sequences in one step
  bool prefix_cache = true;
  std::vector<std::int32_t> suppressed_tokens;  // never drawn: those that are not the same in the model's vocabulary
};

// A draft model's cache, its shadows, and the executor that evaluates them. If the model has a recurrent state, one
// shadow at a time is evaluated, and none goes back.
class DraftSteps {
 public:
  // The backend and the forward pass outlive it.
  DraftSteps(Backend& backend, ForwardPass& forward, const DraftModelOptions& options, Clock clock);
  DraftSteps(const DraftSteps&) = delete;
  DraftSteps& operator=(const DraftSteps&) = delete;

  ShadowSequences& shadows() noexcept { return shadows_; }
  const ShadowSequences& shadows() const noexcept { return shadows_; }
  // See ForwardPass.
  void watch(AttentionWatch* watch) { forward_.watch(watch); }
  int vocab_size() const noexcept { return executor_.vocab_size(); }
  int max_rows() const noexcept { return max_rows_; }
  int max_sequences() const noexcept { return max_sequences_; }
  int max_context() const noexcept { return max_context_; }  // that the model has and the cache holds
  std::int64_t now() const { return clock_(); }

  void clear();
  // Adds a shadow's next rows to the next step. Returns false if its cache has no room for them.
  bool add(Shadow& shadow, int n_rows);
  bool is_empty() const noexcept { return rows_.empty(); }
  std::size_t n_sequences() const noexcept { return rows_.size(); }
  int n_rows() const noexcept;
  // Runs what was added. Returns false if the step failed: no shadow holds more than before. Throws DeviceError.
  bool run();
  // The rows and draws of the last step.
  Step& step() noexcept { return step_; }

 private:
  Clock clock_;
  ForwardPass& forward_;
  int max_context_;
  int max_rows_;
  int max_sequences_;
  ShadowSequences shadows_;
  StateSaves states_;  // saves no snapshot
  StepExecutor executor_;
  Step step_;
  std::vector<PlannedRows> rows_;  // of the next step
  std::vector<Shadow*> planned_;   // the shadow of each element of rows_
  std::vector<BlockCopy> copies_;
};

}  // namespace imp
