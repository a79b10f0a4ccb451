// What the layers of a configuration need from their backend.
#pragma once

#include "backend/backend.h"
#include "model/config/forward_limits.h"
#include "model/config/model_config.h"
#include "model/layer/layer_weights.h"

namespace imp {

// Apart from weights.
WorkspaceNeeds workspace_needs(const ModelConfig& config, const ForwardLimits& limits);

// Adds the matrices of a layer.
void add_matrices(const LayerWeights& weights, WorkspaceNeeds& needs);

}  // namespace imp
