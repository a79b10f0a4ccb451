// Decides, before anything is loaded, which tensor becomes which weight and which kernels will run on it.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "backend/gemm_registry.h"
#include "files/model_file.h"
#include "model/resolve.h"
#include "model/weight_places.h"

namespace imp {

struct PlannedWeight {
  const TensorInfo* tensor = nullptr;  // in the file
  WeightUse use = WeightUse::product;
  GemmProblem problem;      // of matrices
  GemmPlan plan;            // of matrices
  int n_matrices = 1;       // that the tensor holds, each of the problem's shape
  std::size_t n_bytes = 0;  // once loaded, of all of them
};

struct WeightPlan {
  std::vector<PlannedWeight> weights;        // in the order of weight_places()
  const TensorInfo* rope_factors = nullptr;  // or none
  std::size_t n_bytes = 0;
  std::vector<std::string> warnings;
};

// Throws ModelError(MODEL_TENSOR) naming the first tensor that is missing, has another shape or a type that does not
// fit, or that stands among the model's tensors and is part of none of its layers; tensors of other names only give a
// warning. Throws OVERRIDE_INVALID as GemmRegistry does. The file outlives the plan.
WeightPlan plan_weights(const ModelFile& file, const ResolvedModel& model, const GemmRegistry& registry,
                        std::span<const GemmOverride> overrides, const PlanPolicy& policy);

}  // namespace imp
