// A sequence's sampler and its ends: owning, resolved copies of what a request asked for.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/sampler.h"

namespace imp {

// SamplerParams with its lists owned. params() points into this object.
struct SamplingOptions {
  SamplerParams values;  // its spans are unused; the lists below count
  std::vector<std::int32_t> dry_breakers;
  std::vector<LogitBias> logit_bias;

  SamplerParams params() const noexcept {
    SamplerParams result = values;
    result.dry_breakers = dry_breakers;
    result.logit_bias = logit_bias;
    return result;
  }
};

// Throws InvalidArgument(FIELD_INVALID) naming the first field out of range; `faults.md` 15.2 has the ranges.
void validate(const SamplingOptions& options, int vocab_size);

}  // namespace imp
