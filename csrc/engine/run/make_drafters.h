// Makes the drafters and the prompt scorer of a loaded model.
#pragma once

#include <memory>

#include "base/clock.h"
#include "engine/data/engine_options.h"
#include "engine/sparse/prompt_scorer.h"
#include "engine/speculation/drafter.h"
#include "model/loaded_model.h"

namespace imp {

struct DraftUses {
  Drafters drafters;                     // those with weights: a draft model, a draft head
  std::unique_ptr<PromptScorer> scorer;  // null: no sparse prefill
};

// Makes those that the options enable and for which the model has the weights. The drafter and the scorer of a draft
// model share its cache. The model must outlive them. media: of the model's encoder; null: there is none.
DraftUses make_drafters(LoadedModel& model, const EngineOptions& options, Clock clock = {},
                        const MediaFacts* media = nullptr);

}  // namespace imp
