// Finds the tokens that a draft model may guess, and makes what uses it.
#include "engine/speculation/make_drafters.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "engine/speculation/model_drafter.h"

namespace imp {
namespace {

// Ids that the model never draws, or that are another token of the draft model.
std::vector<std::int32_t> never_guessed(const EngineOptions& options, int n_tokens, int n_draft_ids) {
  std::vector<std::int32_t> ids;
  for (const auto& list : {options.suppressed_tokens, options.draft_suppressed_tokens}) {
    std::ranges::copy_if(list, std::back_inserter(ids), [&](std::int32_t id) { return id < n_draft_ids; });
  }
  for (std::int32_t id = n_tokens; id < n_draft_ids; ++id) ids.push_back(id);
  return ids;
}

}  // namespace

DraftUses make_drafters(LoadedModel& model, const EngineOptions& options, Clock clock) {
  DraftUses uses;
  const bool drafts = std::ranges::find(options.drafters, ModelDrafter::kName) != options.drafters.end();
  if (model.draft == nullptr || (!drafts && !options.sparse_prefill)) return uses;
  const ModelConfig& draft = model.draft->config();
  const int n_tokens = options.n_tokens > 0 ? options.n_tokens : model.model->config().vocab_size;
  const auto steps = std::make_shared<DraftSteps>(
      *model.backend, *model.draft_decoder,
      DraftModelOptions{.n_blocks = model.draft->memory().n_blocks,
                        .max_context = draft.max_context,
                        .max_running = 2 * options.max_running,
                        .prefix_cache = options.prefix_cache,
                        .suppressed_tokens = never_guessed(options, n_tokens, draft.vocab_size)},
      std::move(clock));
  if (drafts) uses.drafters.push_back(std::make_unique<ModelDrafter>(steps, model.draft_cost));
  if (options.sparse_prefill) uses.scorer = std::make_unique<PromptScorer>(steps, model.draft_cost);
  return uses;
}

}  // namespace imp
