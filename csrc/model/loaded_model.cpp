// Makes device, model and decoder, then the draft model and its decoder.
#include "model/loaded_model.h"

#include <optional>
#include <utility>

#include "base/error.h"
#include "model/draft_model.h"

namespace imp {

LoadedModel load_on_device(const ModelFile& file, const DeviceOptions& device, const ModelOverrides& overrides,
                           const LoadOptions& options, const ModelFile* draft) {
  LoadedModel loaded;
  loaded.backend = make_backend(device);
  Backend& backend = *loaded.backend;
  LoadPlan plan = plan_load(file, backend, overrides, options);
  std::optional<LoadPlan> draft_plan;
  if (draft != nullptr) {
    draft_plan = plan_draft(*draft, backend, plan, overrides, options);
    loaded.draft_cost = static_cast<double>(bytes_per_token(*draft_plan)) / static_cast<double>(bytes_per_token(plan));
  }
  MemoryPlan memory = plan_memory(plan.memory);
  const int n_draft_blocks = memory.n_draft_blocks;
  const ForwardLimits limits = plan.limits;
  if (plan.vision) loaded.vision = load_vision_of(file, plan, backend, options);
  loaded.model = load_planned(file, backend, std::move(plan), std::move(memory), options);
  const std::optional<HeadModel>& head = loaded.model->head();
  HiddenRows kept;
  if (head) kept = {.are_kept = true, .taps = head->config.taps};
  loaded.decoder = std::make_unique<Decoder>(*loaded.model, backend, limits, std::move(kept));
  if (head) loaded.head = make_draft_head(*head, *loaded.model, backend, limits);
  if (draft_plan) {
    loaded.draft = load_draft(*draft, backend, std::move(*draft_plan), n_draft_blocks, options);
    loaded.draft_decoder = std::make_unique<Decoder>(*loaded.draft, backend, draft_options(options).limits);
  }
  return loaded;
}

ModelLease::ModelLease(LoadedModel& model) : is_leased_(*model.is_leased) {
  if (!is_leased_.exchange(true, std::memory_order_acquire)) return;
  throw FieldInvalid("model", "an engine runs on it, and a model serves one engine at a time; load it once for each");
}

}  // namespace imp
