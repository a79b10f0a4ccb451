// Frequencies of rotary positions, scaling and factors applied.
#pragma once

#include <span>

#include "backend/attention.h"
#include "model/model_config.h"

namespace imp {

// `factors` divide the frequencies one by one, [dims / 2], or are empty. The configuration is valid.
Rope resolve_rope(const RopeConfig& config, std::span<const float> factors);

}  // namespace imp
