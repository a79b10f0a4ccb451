// The place of each patch in its part: what is added to its row, and by which positions its heads rotate.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "model/vision/vision_plan.h"

namespace imp {

class PatchPositions {
 public:
  // All of them must outlive it.
  PatchPositions(const VisionConfig& config, const VisionWeights& weights, Backend& backend)
      : config_(config), weights_(weights), backend_(backend) {}

  // Adds the embeddings of patches first, first + 1, … to their rows. `scratch` is as large as the rows.
  void add_to(Rows rows, Grid patches, int first, Rows scratch);
  // The rows of the grid in which n patches lie, and then their columns: two planes of positions. Valid until the next
  // call.
  std::span<const std::int32_t> places(Grid patches, int first, int n);

 private:
  void add_axes_to(Rows rows, Grid patches, int first, Rows scratch);
  void interpolate(Grid patches, int first, std::span<float> out) const;

  const VisionConfig& config_;
  const VisionWeights& weights_;
  Backend& backend_;
  std::vector<std::int32_t> numbers_;
  std::vector<float> values_;
};

}  // namespace imp
