// Loads the weights of a plan into a backend.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "model/weights/packed_cache.h"
#include "model/weights/weight_plan.h"
#include "model/weights/weights.h"

namespace imp {

// A model's cache of packed weights, and how the load used it.
struct PackedWeights {
  std::string folder;
  std::optional<PackedCache> cache;     // none if the device does not support one
  std::vector<const Linear*> matrices;  // in the cache's order
  bool was_read = false;
  std::string why;  // why the cache was not used
};

// Called on the loading thread about a hundred times and at the end, with bytes read and total bytes. An exception ends
// the load.
using LoadProgress = std::function<void(std::uint64_t done, std::uint64_t total)>;

// Reads vectors first, then matrices, in file order. Scans vectors: NaN or Inf is ModelError(MODEL_NONFINITE) with
// tensor and element.
//
// `packed` may be null. If its cache is usable, the matrices are read from it; otherwise the call sets `why`.
Weights load_weights(const ModelFile& file, const ResolvedModel& model, const WeightPlan& plan, Backend& backend,
                     const LoadProgress& progress, PackedWeights* packed);

// Fills the slots of the specs of a plan. `packed` is as above.
void load_specs(const ModelFile& file, std::span<const WeightSpec> specs, const WeightPlan& plan, int head_dim,
                Backend& backend, const LoadProgress& progress, PackedWeights* packed);

// The resolved frequencies of each RoPE of the configuration.
std::vector<Rope> load_ropes(const ModelFile& file, const ModelConfig& config, const WeightPlan& plan);

}  // namespace imp
