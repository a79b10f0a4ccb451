// What the sampler's host side and its kernels hand each other.
#pragma once

#include <cstdint>

#include "backend/adjustments.h"
#include "backend/sampler.h"

namespace imp::cuda {

struct Adjustment {
  std::int32_t token;
  float amount;
};

// One request: to choose a token, or to score one.
struct Asked {
  std::uint64_t random;  // bits of the draw
  float temperature, top_p, min_p, typical_p;
  std::int32_t top_k;  // 0: all
  std::int32_t logits_row;
  std::int32_t token;                        // to score, or -1
  std::int32_t n_candidates;                 // to list, at most the vocabulary
  std::int32_t first_candidate;              // of the list, among those of all requests
  std::int32_t steps[kAdjustmentSteps + 1];  // adjustments of step s: from steps[s] up to steps[s + 1]
  std::int32_t first_mask_word;              // of what all its masks allow, or -1
  bool is_greedy, keeps_all, is_adjusted, wants_logprob;
};

struct Answer {
  double log_sum;   // of e^(logit - greatest) over the raw logits, where log-probabilities are wanted
  float greatest;   // raw logit
  float least;      // raw logit
  std::int32_t id;  // of the greatest
  std::int32_t token;
  float logprob;
  SampleStatus status;
};

}  // namespace imp::cuda
