// Finds the vision tower of a checkpoint, and reads its configuration.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "files/model_file.h"
#include "model/arch/vision/vision_config.h"
#include "model/arch/vision/vision_family.h"

namespace imp {

struct ResolvedVision {
  const VisionArchitecture* architecture = nullptr;
  VisionConfig config;
  std::set<std::string> read_tensors;  // whose values are in the configuration
  std::string omitted_sizes;           // as ResolvedModel::omitted_sizes
  std::vector<std::string> warnings;   // sentences about unknown keys
};

// Whether a model directory has a tower that imp runs beside its decoder.
bool has_vision(const ModelFile& file) noexcept;

// `file` is a projector ("mmproj") in GGUF, or a model directory with a tower. In families of any size an image has
// `most_cells` at most. Needs no device and no weights. Throws ModelError: MODEL_UNSUPPORTED for a file of another kind
// or a tower of an unknown family, or as resolve_model().
ResolvedVision resolve_vision(const ModelFile& file, int most_cells);

}  // namespace imp
