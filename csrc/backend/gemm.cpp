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
  switch (format) {
    case ActivationFormat::f32:
      return "f32";
    case ActivationFormat::bf16:
      return "bf16";
    case ActivationFormat::q8_block32:
      break;
  }
  return "q8_block32";
}

std::string_view name_of(ReductionId reduction) noexcept {
  switch (reduction) {
    case ReductionId::f32_sequential:
      return "f32_sequential";
    case ReductionId::bf16_pairs:
      return "bf16_pairs";
    case ReductionId::q8_block32:
      break;
  }
  return "q8_block32";
}

}  // namespace imp
