// Reads the weights of a plan into a backend.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "model/layers.h"
#include "model/packed_cache.h"
#include "model/weight_plan.h"

namespace imp {

// A model's cache of packed weights and what became of it at the load.
struct PackedWeights {
  std::string folder;
  std::optional<PackedCache> cache;     // none where the device cannot have one
  std::vector<const Linear*> matrices;  // in the cache's order
  bool was_read = false;
  std::string why;  // it was not
};

// Told on the loading thread, about a hundred times and at the end: bytes of the file read, and in all. What it throws
// ends the load.
using LoadProgress = std::function<void(std::uint64_t done, std::uint64_t total)>;

// Reads vectors first, then matrices, in file order. Vectors are scanned: NaN or Inf is ModelError(MODEL_NONFINITE)
// with tensor and element.
//
// `packed` may be none. Where it holds what is needed the matrices are read from there; where not, its `why` says why.
Weights load_weights(const ModelFile& file, const ResolvedModel& model, const WeightPlan& plan, Backend& backend,
                     const LoadProgress& progress, PackedWeights* packed);

// The resolved frequencies of each of the configuration's ropes.
std::vector<Rope> load_ropes(const ModelFile& file, const ModelConfig& config, const WeightPlan& plan);

}  // namespace imp
