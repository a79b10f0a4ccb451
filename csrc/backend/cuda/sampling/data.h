// The data exchanged by the sampler's host code and its kernels.
#pragma once

#include <cstdint>

#include "backend/adjustments.h"
#include "backend/sampler.h"

namespace imp::cuda {

struct Adjustment {
  std::int32_t token;
  float amount;
};

// A request to sample a token or to score one.
struct DeviceRequest {
  std::uint64_t random;  // bits of the draw
  SamplerValues values;  // top_k is that of active_top_k()
  std::int32_t logits_row;
  std::int32_t token;                        // to score, or -1
  std::int32_t n_candidates;                 // to list, at most the vocabulary
  std::int32_t first_candidate;              // index of its first candidate in the list of all requests
  std::int32_t steps[kAdjustmentSteps + 1];  // adjustments of step s: from steps[s] up to steps[s + 1]
  std::int32_t first_mask_word;              // of the AND of its masks, or -1
  bool is_greedy, keeps_all, is_adjusted, wants_logprob;
};

struct DeviceResult {
  double log_sum;   // of e^(logit - greatest) over the raw logits, if log-probabilities are needed
  float greatest;   // raw logit
  float least;      // raw logit
  std::int32_t id;  // of the greatest
  std::int32_t token;
  float logprob;
  SampleStatus status;
};

}  // namespace imp::cuda
