// Applies the user's overrides to the configuration of a checkpoint.
#pragma once

#include "model/config/model_config.h"
#include "model/config/model_overrides.h"
#include "model/config/origins.h"

namespace imp {

void apply_overrides(const ModelOverrides& overrides, ModelConfig& config, Origins& origins);

}  // namespace imp
