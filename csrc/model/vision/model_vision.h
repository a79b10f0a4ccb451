// The vision tower of a model: plans and loads the one that the options of a load ask for.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "model/model.h"
#include "model/vision/vision_plan.h"
#include "model/vision/vision_tower.h"

namespace imp {

// None if the options ask for none, or if neither they nor the model's directory have one. Throws as plan_vision(), and
// ModelError(MODEL_UNSUPPORTED) if the backend lacks an op. Errors in the file of a projector name the model too. If it
// may not fit, they become a warning of the model.
std::optional<VisionPlan> find_vision(const ModelFile& file, ResolvedModel& model, const Backend& backend,
                                      const ModelOverrides& overrides, const PlanPolicy& policy,
                                      const LoadOptions& options);

// Adds the memory of a tower to that of the model, whose ops need `model_scratch` bytes. Throws InvalidArgument if the
// room for encodings holds none.
void add_vision(const VisionPlan& vision, std::uint64_t model_scratch, const LoadOptions& options,
                MemoryRequest& request);

// A loaded tower that encodes images for a decoder.
struct ModelVision {
  // The plan must have a tower: that of `loaded`. The backend must outlive it.
  ModelVision(VisionModel loaded, const LoadPlan& plan, Backend& backend);
  ModelVision(const ModelVision&) = delete;
  ModelVision& operator=(const ModelVision&) = delete;

  std::string_view family;
  std::vector<WeightSummary> weights;
  int media_rows;  // of kept encodings, for which the memory plan has room
  VisionModel model;
  VisionTower tower;
};

// Throws as load_vision().
std::unique_ptr<ModelVision> load_vision_of(const ModelFile& file, const LoadPlan& plan, Backend& backend,
                                            const LoadOptions& options);

}  // namespace imp
