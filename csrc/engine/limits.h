// What a request may hold at most: the service checks by the same numbers, over `_core.LIMITS`.
#pragma once

#include "backend/sampler_fields.h"

namespace imp {

struct Limits {
  int top_logprobs = 20;
  int stop_tokens = 256;
  int logit_biases = kMaxLogitBias;
  double bias = kMaxBias;  // either way
  int sequences = 8;       // of one prompt
  int priority = 100;      // either way
  int tenant_bytes = 64;
  int scope_bytes = 256;  // of a cache scope: a tenant and a salt
  int profile_steps = 1000;
};

inline constexpr Limits kLimits;

}  // namespace imp
