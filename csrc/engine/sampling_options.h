// A sequence's sampling options, resolved and owned.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/sampler.h"

namespace imp {

// SamplerParams that owns its lists. params() points into this object.
struct SamplingOptions {
  SamplerParams values;  // its spans are unused; the lists below replace them
  std::vector<std::int32_t> dry_breakers;
  std::vector<LogitBias> logit_bias;

  SamplerParams params() const noexcept {
    SamplerParams result = values;
    result.dry_breakers = dry_breakers;
    result.logit_bias = logit_bias;
    return result;
  }
};

// Throws InvalidArgument(FIELD_INVALID) for the first field out of range. Section 15.2 of faults.md has the ranges.
void validate(const SamplingOptions& options, int vocab_size);

}  // namespace imp
