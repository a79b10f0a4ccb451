// What uses the draft model of a loaded model.
#pragma once

#include <memory>

#include "base/clock.h"
#include "engine/engine_options.h"
#include "engine/sparse/prompt_scorer.h"
#include "engine/speculation/drafter.h"
#include "model/loaded_model.h"

namespace imp {

struct DraftUses {
  Drafters drafters;                     // that compute with weights
  std::unique_ptr<PromptScorer> scorer;  // null: no sparse prefill
};

// Those that the options name, if the model has a draft model. They share its cache. The model outlives them.
DraftUses make_drafters(LoadedModel& model, const EngineOptions& options, Clock clock = {});

}  // namespace imp
