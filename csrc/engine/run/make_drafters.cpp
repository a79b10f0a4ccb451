// Finds the tokens that a drafter may guess, and makes the drafters and the prompt scorer.
#include "engine/run/make_drafters.h"

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/speculation/head_drafter.h"
#include "engine/speculation/known_answer_drafter.h"
#include "engine/speculation/model_drafter.h"
#include "model/draft_model.h"

namespace imp {
namespace {

int n_tokens_of(const LoadedModel& model, const EngineOptions& options) {
  return options.n_tokens > 0 ? options.n_tokens : model.model->config().vocab_size;
}

// Ids that the model never draws, and those of `others`.
std::vector<std::int32_t> never_guessed(const EngineOptions& options, const std::vector<std::int32_t>& others,
                                        int n_tokens, int n_ids) {
  std::vector<std::int32_t> ids;
  for (const auto& list : {options.suppressed_tokens, others}) {
    std::ranges::copy_if(list, std::back_inserter(ids), [&](std::int32_t id) { return id >= 0 && id < n_ids; });
  }
  for (std::int32_t id = n_tokens; id < n_ids; ++id) ids.push_back(id);
  return ids;
}

std::unique_ptr<Drafter> head_drafter(LoadedModel& model, const EngineOptions& options, const MediaFacts* media) {
  const HeadOptions given{
      .n_blocks = options.n_blocks,
      .max_context = options.max_context,
      .cost_of_token = model.model->head()->cost_of_guess,
      .suppressed_tokens = never_guessed(options, {}, n_tokens_of(model, options), model.head->vocab_size()),
      .media_token = media != nullptr ? media->row_token : 0};
  return std::make_unique<HeadDrafter>(*model.backend, *model.head, *model.decoder, given);
}

// options.draft_suppressed_tokens are ids of the draft model that belong to a different token of the model.
std::shared_ptr<DraftSteps> draft_steps(LoadedModel& model, const EngineOptions& options, Clock clock) {
  const ModelConfig& draft = model.draft->config();
  const DraftModelOptions given{.n_blocks = model.draft->memory().n_blocks,
                                .max_context = draft.max_context,
                                .max_running = 2 * options.max_running,
                                .prefix_cache = options.prefix_cache,
                                .suppressed_tokens = never_guessed(options, options.draft_suppressed_tokens,
                                                                   n_tokens_of(model, options), draft.vocab_size)};
  return std::make_shared<DraftSteps>(*model.backend, *model.draft_decoder, given, std::move(clock));
}

}  // namespace

DraftUses make_drafters(LoadedModel& model, const EngineOptions& options, Clock clock, const MediaFacts* media) {
  DraftUses uses;
  if (model.decoder->vocab_size() == 0) return uses;  // it draws nothing
  const auto is_wanted = [&](std::string_view name) {
    return std::ranges::find(options.drafters, name) != options.drafters.end();
  };
  const auto add = [&](std::unique_ptr<Drafter> drafter) {
    if (options.draft_right_share) {
      const int n_tokens = n_tokens_of(model, options);
      drafter = std::make_unique<KnownAnswerDrafter>(std::move(drafter), *options.draft_right_share, n_tokens);
    }
    uses.drafters.push_back(std::move(drafter));
  };
  if (model.head != nullptr && is_wanted(HeadDrafter::kName)) add(head_drafter(model, options, media));
  const bool drafts = model.draft != nullptr && may_guess(model.draft->config()) && is_wanted(ModelDrafter::kName);
  if (model.draft == nullptr || (!drafts && !options.sparse_prefill)) return uses;
  const auto steps = draft_steps(model, options, std::move(clock));
  if (drafts) add(std::make_unique<ModelDrafter>(steps, model.draft_cost));
  if (options.sparse_prefill) uses.scorer = std::make_unique<PromptScorer>(steps, model.draft_cost);
  return uses;
}

}  // namespace imp
