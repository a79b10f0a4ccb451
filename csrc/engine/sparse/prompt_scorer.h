// Scores the tokens of a prompt by the attention that a draft model pays to them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/speculation/draft_steps.h"
#include "model/forward_pass.h"

namespace imp {

// SpecPrefill ("Speculative Prefill: Turbocharging TTFT with Lightweight and Training-Free Token Importance
// Estimation"). The draft model evaluates the prompt and continues it by kLookahead greedy tokens. For each of these
// queries, the attention to a token of the prompt is the maximum of the smoothed weights over heads and layers. The
// importance of a token is the mean over the queries.
//
// The scorer evaluates the sequence's shadow. So if the run drafts later, its prompt is already in the draft model's
// cache.
class PromptScorer {
 public:
  static constexpr int kLookahead = 8;
  enum class Progress : std::uint8_t { working, done, failed };

  // cost_of_row: time of a row of the draft model / time of a row of the model.
  PromptScorer(std::shared_ptr<DraftSteps> steps, double cost_of_row)
      : steps_(std::move(steps)), cost_of_row_(cost_of_row) {
    greedy_.temperature = 0;
  }

  // The longest prompt that it can score.
  int max_tokens() const noexcept { return steps_->max_context() - kLookahead; }
  int max_rows() const noexcept { return steps_->max_rows(); }
  double cost_of_row() const noexcept { return cost_of_row_; }

  // Begins to score the prompt's tokens from first_token on. One prompt at a time. Returns false if the draft model
  // lacks a token. Throws bad_alloc.
  bool begin(const Sequence& sequence, int first_token);
  // Runs one step: up to n_rows of the prompt, or one of the tokens after it. Throws DeviceError.
  Progress advance(int n_rows);
  // After Progress::done: the importance of each token.
  std::span<const float> importance() const noexcept { return importance_; }
  // Of the last step.
  int first_row() const noexcept { return first_row_; }
  int n_rows() const noexcept { return n_rows_; }

  // Ends the scoring in any state. The shadow's blocks are freed unless the run is going to draft with them.
  void end(bool keeps_shadow);
  // The sequence ends.
  void forget(const Sequence& sequence) noexcept;

 private:
  bool run_step(Shadow& shadow, bool is_query);
  bool take_draw(Shadow& shadow);

  std::shared_ptr<DraftSteps> steps_;
  double cost_of_row_;
  std::optional<SequenceId> id_;  // of the sequence whose prompt is scored
  int n_prompt_ = 0;              // its tokens
  SamplerParams greedy_;
  AttentionWatch watch_;
  std::vector<float> mass_;  // of one query
  std::vector<float> importance_;
  int first_row_ = 0;
  int n_rows_ = 0;
};

}  // namespace imp
