// Sparse prefill: decides which prompts are evaluated in part, and has them scored one after the other.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "engine/engine_state.h"
#include "engine/sparse/prompt_costs.h"
#include "engine/step_executor.h"

namespace imp {

// A run whose prompt may be sparse waits for admission until its prompt is scored. Scoring takes one step of the draft
// model in each turn of the loop, so commands and the steps of other runs go on meanwhile. A sequence then has the
// chosen tokens only (Sequence::sparse); scheduler and executor treat it as any other. Whatever fails before its first
// output makes it dense again.
class SparsePrefill {
 public:
  // takes_gaps: see ForwardPass.
  SparsePrefill(EngineState& state, const Clock& clock, bool takes_gaps)
      : state_(state), clock_(clock), takes_gaps_(takes_gaps) {}

  // A run begins. If its prompt has to be scored, it awaits that.
  void decide(Sequence& sequence);
  // Runs a step of scoring. Returns false if no prompt waits for it. Throws DeviceError.
  bool advance();
  // The evaluation of the chosen part failed.
  void fall_back(Sequence& sequence) noexcept;
  // A step of the model took this long.
  void learn(const Step& step, std::int64_t step_ns) noexcept;

 private:
  Sequence* current();
  bool begin(Sequence& sequence);
  void finish(Sequence& sequence);
  void make_sparse(Sequence& sequence);
  void make_dense(Sequence& sequence, DenseReason reason) noexcept;
  int n_cached(const Sequence& sequence);
  int n_rows() const noexcept;

  EngineState& state_;
  const Clock& clock_;
  bool takes_gaps_;
  PromptCostFit model_;
  PromptCostFit draft_;
  int n_decode_rows_ = 0;  // of the last step
  // The run whose prompt is being scored, from its token first_ on; ticket 0: none.
  SequenceId id_ = 0;
  Ticket ticket_ = 0;
  int first_ = 0;
};

}  // namespace imp
