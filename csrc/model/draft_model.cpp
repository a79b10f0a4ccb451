// Plans and loads a draft model.
#include "model/draft_model.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"

namespace imp {
namespace {

constexpr const char* kSetting = "speculation.model";

// Names the setting in the errors of the draft model's file.
template <class Function>
auto naming_setting(const Function& function) {
  try {
    return function();
  } catch (const ModelError& error) {
    throw ModelError(error.reason(), std::string(kSetting) + ": " + error.what(), error.details());
  }
}

void require_use(const LoadPlan& draft, const LoadPlan& model, std::vector<std::string>& warnings) {
  const std::uint64_t read = bytes_per_token(draft);
  const std::uint64_t model_reads = bytes_per_token(model);
  const std::string both = "reads " + bytes_text(read) + " a token, the model " + bytes_text(model_reads);
  if (read >= model_reads) throw FieldInvalid(kSetting, both + ": expected less");
  if (read > model_reads / 2) warnings.push_back(std::string(kSetting) + ": " + both + ": the speedup will be small");
}

void require_task(const LoadPlan& draft, const ModelFile& file, const LoadOptions& options) {
  if (options.draft_scores_prompts || may_guess(draft.resolved.config)) return;
  throw ModelError(Reason::MODEL_UNSUPPORTED,
                   std::string(kSetting) + ": " + file.name() +
                       ": has layers with a recurrent state: it can score prompts (sparse_prefill.enabled), not guess");
}

}  // namespace

std::uint64_t bytes_per_token(const LoadPlan& plan) {
  return bytes_per_token(plan.weights, plan.resolved.config.experts);
}

LoadOptions draft_options(LoadOptions options) {
  options.limits.is_watched = options.draft_scores_prompts;
  options.limits.takes_media = false;  // it sees the text alone
  // The head, if there is one, is the model's.
  options.with_own_head = false;
  options.head_file = nullptr;
  return options;
}

LoadPlan plan_draft(const ModelFile& file, const Backend& backend, LoadPlan& model, const ModelOverrides& overrides,
                    const LoadOptions& options) {
  ModelOverrides own;
  if (overrides.kv_types) own.kv_types = of_drafter(*overrides.kv_types);
  own.deterministic = overrides.deterministic;
  own.unvalidated_kernels = overrides.unvalidated_kernels;
  LoadPlan plan = naming_setting([&] {
    const int context = resolve_model(file, own).config.max_context;
    own.max_context = std::min(context, model.resolved.config.max_context);
    return plan_load(file, backend, own, draft_options(options));
  });
  require_task(plan, file, options);
  require_use(plan, model, model.weights.warnings);
  model.memory.scratch_bytes += plan.memory.scratch_bytes + kDraftStateSlots * plan.memory.state_slot_bytes;
  model.memory.logits_bytes += plan.memory.logits_bytes;
  model.memory.draft = DraftMemory{.weights_bytes = plan.memory.weights_bytes,
                                   .kv_block_bytes = plan.memory.kv_block_bytes,
                                   .kv_bytes = options.draft_kv_bytes};
  return plan;
}

std::unique_ptr<const Model> load_draft(const ModelFile& file, Backend& backend, LoadPlan plan, int n_blocks,
                                        const LoadOptions& options) {
  LoadOptions own = options;
  own.progress = {};
  own.packed_cache.clear();
  MemoryPlan memory{.items = {},
                    .budget_bytes = 0,
                    .n_blocks = n_blocks,
                    .n_state_slots = may_guess(plan.resolved.config) ? 0 : kDraftStateSlots,
                    .n_draft_blocks = 0,
                    .max_context = plan.resolved.config.max_context};
  return naming_setting([&] { return load_planned(file, backend, std::move(plan), std::move(memory), own); });
}

}  // namespace imp
