// The drafters of a loaded model.
#pragma once

#include "base/clock.h"
#include "engine/engine_options.h"
#include "engine/speculation/drafter.h"
#include "model/loaded_model.h"

namespace imp {

// Those that compute with weights, where the options name them and the model has them. It outlives them.
Drafters make_drafters(LoadedModel& model, const EngineOptions& options, Clock clock = {});

}  // namespace imp
