// Decides whether a prompt is evaluated in part (sparse) or as a whole (dense).
#pragma once

#include "engine/data/sparse_request.h"
#include "engine/sparse/prompt_costs.h"

namespace imp {

// What the decision depends on, apart from the request and the limits.
struct PromptFacts {
  int n_cached = 0;           // tokens that the prefix cache holds
  int n_new = 0;              // tokens after them
  bool wants_scores = false;  // of the prompt's tokens
  bool has_media = false;
  int max_scored = 0;  // the longest prompt that the draft model holds
  PromptCost draft;    // costs in one unit
  PromptCost model;
};

// `none`: the prompt is scored, and then evaluated in part.
DenseReason why_dense(const SparseRequest& request, const SparseLimits& limits, const PromptFacts& facts) noexcept;

}  // namespace imp
