// Plans and loads the weights of a vision tower.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "files/model_file.h"
#include "model/arch/vision/resolve_vision.h"
#include "model/layer/layer_weights.h"
#include "model/weights/load_weights.h"
#include "model/weights/weight_plan.h"

namespace imp {

// Null if the configuration has no such weight.
struct ProjectorWeights {
  NormWeights norm;  // [cell width]
  Matrix first;      // [slice, cell width], or [cell width, cell width] before a second one
  Values first_bias;
  Matrix second;  // [slice, cell width]
  Values second_bias;
};

struct VisionWeights {
  Matrix patches;  // [hidden, 3 · patch²]: three colours, one after the other
  Values patch_bias;
  Matrix positions;          // [patches, hidden]; null with one of the next
  HostTable position_table;  // [table_side², hidden]
  Stack axis_positions;      // two of [axis_places, hidden]
  std::vector<LayerWeights> layers;
  NormWeights final_norm;
  Values mean, factors;  // [hidden], of the mean of patches
  std::vector<ProjectorWeights> projectors;
};

struct VisionMemory {
  std::uint64_t weights_bytes = 0;
  std::uint64_t activation_bytes = 0;  // with its cache of one layer
  std::uint64_t scratch_bytes = 0;     // of the ops; a decoder on the same backend shares it
};

struct VisionPlan {
  ResolvedVision resolved;
  WeightPlan weights;
  VisionMemory memory;  // of vision_memory(), once a backend is known
};

// A loaded tower.
struct VisionModel {
  VisionConfig config;
  VisionWeights weights;
};

// The model that reads the cells, and its bounds of them.
struct CellReader {
  std::string name;                                  // of its file
  int width = 0;                                     // of a cell
  int most_cells = std::numeric_limits<int>::max();  // of an image in families of any size
};

// Checks every tensor of the tower. Throws ModelError as resolve_vision(), MODEL_CONFIG if the cells are not as wide as
// `reader` needs them, and MODEL_TENSOR for a tensor of the tower that is missing, has another shape or is not read.
VisionPlan plan_vision(const ModelFile& file, const CellReader& reader, const GemmRegistry& registry,
                       std::span<const GemmOverride> overrides, const PlanPolicy& policy);

// Throws as load_specs().
VisionModel load_vision(const ModelFile& file, const VisionPlan& plan, Backend& backend, const LoadProgress& progress);

}  // namespace imp
