// Limits of a request. The service checks the same numbers, through `_core.LIMITS`.
#pragma once

#include "backend/sampler_fields.h"

namespace imp {

struct Limits {
  int top_logprobs = 20;
  int stop_tokens = 256;
  int logit_biases = kMaxLogitBias;
  double bias = kMaxBias;  // in magnitude
  int sequences = 8;       // that a request asks for
  int run_sequences = 16;  // of one run, such as a part of a decision
  int priority = 100;      // in magnitude
  int tenant_bytes = 64;
  int scope_bytes = 256;  // of a cache scope: a tenant and a salt
  int profile_steps = 1000;
  int draft_tokens = 64;             // guesses in one step,
  int constrained_draft_tokens = 8;  // and if each one needs a mask
};

inline constexpr Limits kLimits;

}  // namespace imp
