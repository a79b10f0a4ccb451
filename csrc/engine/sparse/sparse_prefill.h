// Sparse prefill: decides which prompts are evaluated in part, and has them scored one after the other.
#pragma once

#include <cstdint>
#include <memory>

#include "base/clock.h"
#include "engine/schedule/engine_state.h"
#include "engine/sparse/prompt_costs.h"
#include "engine/sparse/prompt_scorer.h"
#include "engine/speculation/speculation.h"
#include "engine/step/step.h"

namespace imp {

// A run whose prompt may be sparse is not admitted before its prompt is scored. Scoring runs one step of the draft
// model in each iteration of the loop, so commands and the steps of other runs continue. Afterwards the sequence has
// only the chosen tokens (Sequence::sparse), and the scheduler and the executor treat it like any other. If anything
// fails before its first output, it becomes dense again.
class SparsePrefill {
 public:
  // Throws InvalidArgument if the options need a scorer and there is none.
  SparsePrefill(EngineState& state, const Speculation& speculation, std::unique_ptr<PromptScorer> scorer,
                const Clock& clock);

  // Decides whether the prompt of a new run is scored, and sets Run::awaits_scoring.
  void decide(Sequence& sequence);
  // Runs a step of scoring. Returns false if no prompt waits for it. Throws DeviceError.
  bool advance();
  // Makes the sequence dense, because the evaluation of the chosen part failed.
  void fall_back(Sequence& sequence) noexcept;
  // Measures a step of the model, which took step_ns.
  void learn(const Step& step, std::int64_t step_ns) noexcept;
  // The sequence ends: frees what the scorer keeps of it.
  void forget(const Sequence& sequence) noexcept;

 private:
  Sequence* current();
  bool begin(Sequence& sequence);
  void finish(Sequence& sequence);
  void make_sparse(Sequence& sequence);
  void make_dense(Sequence& sequence, DenseReason reason) noexcept;
  bool drafts_with_scorer(const Run& run) const noexcept;
  int n_cached(const Sequence& sequence);
  int n_rows() const noexcept;

  EngineState& state_;
  const Speculation& speculation_;
  std::unique_ptr<PromptScorer> scorer_;  // null: there is none
  const Clock& clock_;
  PromptCostFit model_;
  PromptCostFit draft_;
  int n_decode_rows_ = 0;  // of the last step
  // The run whose prompt is being scored, and the first token that is scored; ticket 0: none.
  SequenceId id_ = 0;
  Ticket ticket_ = 0;
  int first_ = 0;
};

}  // namespace imp
