// The norm of the residual stream, as a configuration says.
#pragma once

#include "backend/backend.h"
#include "model/config/model_config.h"
#include "model/layer/layer_weights.h"

namespace imp {

// `reader`: the product that reads the result, or null.
inline Norm norm_of(const ModelConfig& config, const NormWeights& weights, const Linear* reader) {
  return {.weight = weights.weight.get(), .epsilon = config.norm_epsilon, .reader = reader, .bias = weights.bias.get()};
}

inline void normalize(Backend& backend, const ModelConfig& config, Rows x, const NormWeights& weights,
                      const Linear* reader, Rows out) {
  const Norm norm = norm_of(config, weights, reader);
  config.norm_kind == NormKind::rms ? backend.rms_norm(x, norm, out) : backend.layer_norm(x, x.width, norm, out);
}

}  // namespace imp
