// Frequencies of rotary positions, scaling and factors applied.
#pragma once

#include <span>

#include "backend/attention.h"
#include "model/model_config.h"

namespace imp {

// The magnitude that follows from factor and the mscales; attention_factor multiplies it.
double yarn_magnitude(const RopeScaling& scaling);

// `factors` divide the frequencies one by one, [dims / 2], or are empty. The configuration is valid.
Rope resolve_rope(const RopeConfig& config, std::span<const float> factors);

}  // namespace imp
