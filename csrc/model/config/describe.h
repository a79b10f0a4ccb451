// Describes a configuration in lines of text.
#pragma once

#include <vector>

#include "model/config/model_config.h"
#include "model/config/origins.h"

namespace imp {

// Every field, in the order of ModelConfig, with its origin.
std::vector<Fact> describe(const ModelConfig& config, const Origins& origins);

}  // namespace imp
