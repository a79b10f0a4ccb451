// Finds a tower in the model's directory or in a file of its own, and the memory for what it encodes.
#include "model/vision/model_vision.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "base/error.h"

namespace imp {
namespace {

constexpr const char* kCacheSetting = "media.cache_bytes";

const ModelFile& file_of_tower(const ModelFile& model, const LoadOptions& options) noexcept {
  return options.projector_file == nullptr ? model : *options.projector_file;
}

// Names the setting and the model in the errors of a projector's file.
template <class Function>
auto naming_model(const ModelFile& model, const LoadOptions& options, const Function& function) {
  try {
    return function();
  } catch (const ModelError& error) {
    if (options.projector_file == nullptr) throw;
    throw ModelError(error.reason(), "model.projector of " + model.name() + ": " + error.what(), error.details());
  }
}

std::uint64_t row_bytes(const VisionPlan& vision) noexcept {
  return static_cast<std::uint64_t>(vision.resolved.config.width) * sizeof(float);
}

int rows_of_media(const VisionPlan& vision, const MemoryRequest& request) noexcept {
  constexpr std::uint64_t kMost = std::numeric_limits<std::int32_t>::max();
  return static_cast<int>(std::min(kMost, request.media_bytes / row_bytes(vision)));
}

std::uint64_t default_media_bytes(const VisionPlan& vision) noexcept {
  constexpr std::uint64_t kLeast = std::uint64_t{64} << 20, kImages = 2;
  const auto n_rows = static_cast<std::uint64_t>(vision.resolved.config.max_image_cells());
  return std::max(kLeast, kImages * n_rows * row_bytes(vision));
}

}  // namespace

std::optional<VisionPlan> find_vision(const ModelFile& file, ResolvedModel& model, const Backend& backend,
                                      const ModelOverrides& overrides, const PlanPolicy& policy,
                                      const LoadOptions& options) {
  if (!options.vision || (options.projector_file == nullptr && !has_vision(file))) return std::nullopt;
  try {
    return naming_model(file, options, [&] {
      const ModelFile& source = file_of_tower(file, options);
      const CellReader reader{
          .name = file.name(), .width = model.config.media_width(), .most_cells = options.image_cells};
      VisionPlan plan = plan_vision(source, reader, backend.registry(), overrides.gemm, policy);
      plan.memory = vision_memory(source, plan, {}, backend);
      return plan;
    });
  } catch (const ModelError& error) {
    const bool is_of_another = error.reason() == Reason::MODEL_UNSUPPORTED || error.reason() == Reason::MODEL_CONFIG;
    if (!options.projector_may_not_fit || !is_of_another) throw;
    model.warnings.push_back(std::string(error.what()) + "; the model is loaded without it, and reads no images");
    return std::nullopt;
  }
}

void add_vision(const VisionPlan& vision, std::uint64_t model_scratch, const LoadOptions& options,
                MemoryRequest& request) {
  const VisionMemory& memory = vision.memory;
  request.projector_bytes = memory.weights_bytes + memory.activation_bytes +
                            (memory.scratch_bytes > model_scratch ? memory.scratch_bytes - model_scratch : 0);
  request.media_bytes = options.media_bytes.value_or(default_media_bytes(vision));
  const auto least = static_cast<std::uint64_t>(vision.resolved.config.max_part_cells()) * row_bytes(vision);
  if (request.media_bytes >= least) return;
  throw FieldInvalid(kCacheSetting,
                     bytes_text(request.media_bytes) + ", a tile of an image takes " + bytes_text(least));
}

ModelVision::ModelVision(VisionModel loaded, const LoadPlan& plan, Backend& backend)
    : family(plan.vision->resolved.architecture->name),
      weights(summaries_of(plan.vision->weights)),
      media_rows(rows_of_media(*plan.vision, plan.memory)),
      model(std::move(loaded)),
      tower(model, backend,
            {.decoder_row_cost = products_per_row(plan.weights, plan.resolved.config.experts),
             .is_atomic = plan.resolved.config.has_atomic_media()}) {}

std::unique_ptr<ModelVision> load_vision_of(const ModelFile& file, const LoadPlan& plan, Backend& backend,
                                            const LoadOptions& options) {
  VisionModel loaded =
      naming_model(file, options, [&] { return load_vision(file_of_tower(file, options), *plan.vision, backend, {}); });
  return std::make_unique<ModelVision>(std::move(loaded), plan, backend);
}

}  // namespace imp
