// Assigns tensors to weights and kernels to matrices before any weight is loaded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/gemm_registry.h"
#include "files/model_file.h"
#include "model/arch/resolve.h"
#include "model/weights/weight_specs.h"

namespace imp {

struct PlannedWeight {
  const TensorInfo* tensor = nullptr;        // in the file
  const TensorInfo* second_frame = nullptr;  // of a convolution whose second frame has a tensor, or null
  WeightUse use = WeightUse::product;
  GemmProblem problem;           // for matrices
  GemmPlan plan;                 // for matrices
  int n_matrices = 1;            // in the tensor
  std::int64_t first_row = 0;    // of each of its matrices
  std::int64_t tensor_rows = 0;  // of each of its matrices
  RowGroups groups = {};         // of its rows, from first_row on
  bool is_transposed = false;    // the tensor's matrices are [k, tensor_rows]
  int in_turn = 1;               // WeightSpec::in_turn
  std::int64_t frame_size = 0;   // values of a frame in one colour of a row; 0: the rows are no sums of frames
  int frames_in_row = 1;
  std::size_t n_bytes = 0;  // loaded, of all of them

  std::uint64_t file_bytes() const {
    if (frame_size > 0) return static_cast<std::uint64_t>(problem.n * problem.k) * sizeof(float);
    if (use == WeightUse::vector || tensor_rows == problem.n) return tensor->n_bytes;
    return tensor->n_bytes / static_cast<std::uint64_t>(tensor_rows) * static_cast<std::uint64_t>(problem.n);
  }
};

struct WeightPlan {
  std::vector<PlannedWeight> weights;        // in the order of weight_specs()
  const TensorInfo* rope_factors = nullptr;  // those in use, or none
  std::size_t n_bytes = 0;
  std::vector<std::string> warnings;
};

// Throws ModelError(MODEL_TENSOR) for the first tensor that is missing, has a wrong shape or type, or has a name of the
// model's but belongs to none of its layers. Other tensors only cause a warning. Throws OVERRIDE_INVALID as
// GemmRegistry does. The file must outlive the plan.
WeightPlan plan_weights(const ModelFile& file, const ResolvedModel& model, const GemmRegistry& registry,
                        std::span<const GemmOverride> overrides, const PlanPolicy& policy);

// Throws ModelError(MODEL_TENSOR) `<file>: tensor <name>: <found>, expected <expected>`.
[[noreturn]] void refuse_tensor(const ModelFile& file, std::string_view name, const std::string& found,
                                const std::string& expected);

// Plans the tensors of these specs, and looks at no others of the file. `omitted_sizes` are those of ResolvedModel.
WeightPlan plan_specs(const ModelFile& file, std::span<const WeightSpec> specs, const GemmRegistry& registry,
                      std::span<const GemmOverride> overrides, const PlanPolicy& policy,
                      const std::string& omitted_sizes = {});

// Of weights that a row multiplies: a part of the experts, and no lookup tables.
std::uint64_t bytes_per_token(const WeightPlan& plan, const ExpertRouting& routing);

// Multiplications of a row by the weights of the layers.
double products_per_row(const WeightPlan& plan, const ExpertRouting& routing);

}  // namespace imp
