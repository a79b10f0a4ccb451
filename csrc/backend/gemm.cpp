// Words and sizes of what a plan chooses.
#include "backend/gemm.h"

namespace imp {

std::size_t packed_bytes(const GemmProblem& problem, WeightLayout layout) noexcept {
  const std::int64_t panels = (problem.n + kPanelRows - 1) / kPanelRows;
  const std::int64_t rows = layout == WeightLayout::file ? problem.n : panels * kPanelRows;
  return static_cast<std::size_t>(rows * *row_bytes(problem.weight, problem.k));
}

std::string_view name_of(WeightLayout layout) noexcept {
  return layout == WeightLayout::file ? "file" : "panel16";
}

std::string_view name_of(ActivationFormat format) noexcept {
  return format == ActivationFormat::f32 ? "f32" : "q8_block32";
}

std::string_view name_of(ReductionId reduction) noexcept {
  return reduction == ReductionId::f32_sequential ? "f32_sequential" : "q8_block32";
}

}  // namespace imp
