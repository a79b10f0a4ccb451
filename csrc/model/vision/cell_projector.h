// Makes the cells of a part from the rows of its patches.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "model/layer/workspace.h"
#include "model/vision/vision_plan.h"

namespace imp {

// Cells first … first + n of a part with these patches.
struct CellRange {
  Grid patches;
  int first = 0;
  int n = 0;
};

class CellProjector {
 public:
  // Declares its buffers in the workspace, which sets their rows. All of them must outlive it.
  CellProjector(const VisionConfig& config, const VisionWeights& weights, Backend& backend, Workspace& workspace);
  CellProjector(const CellProjector&) = delete;
  CellProjector& operator=(const CellProjector&) = delete;

  // Ops that it needs apart from those of the layers.
  static void add_needs(const VisionConfig& config, WorkspaceNeeds& needs);
  static void declare(const VisionConfig& config, Workspace& workspace, Rows& cells, Rows& inner);
  static double cost_of_cell(const VisionConfig& config, int projector) noexcept;  // in multiplications

  // Writes slice `projector` of the cells to `out`. The workspace has their number of rows.
  void project(int projector, Rows patches, const CellRange& range, Rows out);

 private:
  void normalize(const CellNorm& config, const ProjectorWeights& weights);
  void reduce(Rows patches, const CellRange& range);
  void gather(Rows patches, const CellRange& range, int place, Rows out);

  const VisionConfig& config_;
  const VisionWeights& weights_;
  Backend& backend_;
  Rows cells_;  // [cells, cell_width]
  Rows inner_;  // [cells, cell_width]: between two products; with a mean, the patches to add
  std::vector<std::int32_t> sources_;
};

}  // namespace imp
