// Lays the user's overrides over what a checkpoint and its architecture said.
#pragma once

#include "model/model_config.h"
#include "model/model_overrides.h"
#include "model/origins.h"

namespace imp {

void apply_overrides(const ModelOverrides& overrides, ModelConfig& config, Origins& origins);

}  // namespace imp
