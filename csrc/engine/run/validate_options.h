// Checks the engine's options.
#pragma once

#include "engine/data/engine_options.h"
#include "model/forward_pass.h"

namespace imp {

// Throws InvalidArgument if the options contradict each other, the model or the pool.
void validate(const EngineOptions& options, const ForwardPass& forward);

}  // namespace imp
