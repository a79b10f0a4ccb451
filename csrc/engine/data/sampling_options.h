// A sequence's sampling options, resolved and owned.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/sampler.h"

namespace imp {

// SamplerParams that owns its lists. params() points into this object.
struct SamplingOptions {
  SamplerValues values;
  std::vector<std::int32_t> dry_breakers;
  std::vector<LogitBias> logit_bias;
  std::uint64_t seed = 0;

  SamplerParams params() const noexcept { return {values, dry_breakers, logit_bias, seed}; }
};

// Throws InvalidArgument(FIELD_INVALID) for the first field outside its range in kSamplerFields.
void validate(const SamplingOptions& options, int vocab_size);

}  // namespace imp
