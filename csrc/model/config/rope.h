// RoPE frequencies with scaling ("RoFormer: Enhanced Transformer with Rotary Position Embedding", "YaRN: Efficient
// Context Window Extension of Large Language Models").
#pragma once

#include <span>

#include "backend/attention.h"
#include "model/config/forward_limits.h"
#include "model/config/model_config.h"

namespace imp {

// The magnitude from factor and mscales, without attention_factor.
double yarn_magnitude(const RopeScaling& scaling);

// The divisors of the configuration for its context; empty if it has none.
std::span<const float> divisors_of(const RopeConfig& config);

// `factors` [dims / 2] divide the frequencies one by one, or are empty. The configuration is valid.
Rope resolve_rope(const RopeConfig& config, std::span<const float> factors);

// Positions by which the pairs rotate.
int planes_of(const RopeConfig& rope);
// Positions that each row of a batch has. Text has equal positions in all planes, so without media one is enough.
int planes_of(const ModelConfig& config, const ForwardLimits& limits);

}  // namespace imp
