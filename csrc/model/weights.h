// Reads the weights of a plan into a backend.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "backend/backend.h"
#include "model/layers.h"
#include "model/weight_plan.h"

namespace imp {

// Told after each weight, on the loading thread: bytes of the file read, and in all. What it throws ends the load.
using LoadProgress = std::function<void(std::uint64_t done, std::uint64_t total)>;

// Reads in file order. Vectors are scanned: NaN or Inf is ModelError(MODEL_NONFINITE) with tensor and element.
Weights load_weights(const ModelFile& file, const ResolvedModel& model, const WeightPlan& plan, Backend& backend,
                     const LoadProgress& progress);

// The resolved frequencies of each of the configuration's ropes.
std::vector<Rope> load_ropes(const ModelFile& file, const ModelConfig& config, const WeightPlan& plan);

}  // namespace imp
