// Names and sizes of layouts, formats and reductions.
#include "backend/gemm.h"

namespace imp {

std::string refusal(const GemmKernel& kernel, const GemmProblem& problem, const DeviceCaps& caps) {
  if (const char* const reason = kernel.refuses(problem, caps)) return reason;
  if (caps.cpu.includes(kernel.needs)) return {};
  return "needs " + missing_features(caps.cpu, kernel.needs);
}

std::size_t packed_bytes(const GemmProblem& problem, WeightLayout layout) noexcept {
  const std::int64_t panels = (problem.n + kPanelRows - 1) / kPanelRows;
  const std::int64_t rows = layout == WeightLayout::file ? problem.n : panels * kPanelRows;
  const std::int64_t tiles = (problem.k + kTileDepth - 1) / kTileDepth;
  const std::int64_t elements = layout == WeightLayout::tile16 ? tiles * kTileDepth : problem.k;
  return static_cast<std::size_t>(rows * *row_bytes(problem.weight, elements));
}

std::string_view name_of(WeightLayout layout) noexcept {
  switch (layout) {
    case WeightLayout::file:
      return "file";
    case WeightLayout::panel16:
      return "panel16";
    case WeightLayout::tile16:
      break;
  }
  return "tile16";
}

std::string_view name_of(ActivationFormat format) noexcept {
  switch (format) {
    case ActivationFormat::f32:
      return "f32";
    case ActivationFormat::bf16:
      return "bf16";
    case ActivationFormat::q8_block32:
      return "q8_block32";
    case ActivationFormat::q8_rows:
      return "q8_rows";
    case ActivationFormat::f16_rows:
      return "f16_rows";
    case ActivationFormat::f16_even_odd:
      return "f16_even_odd";
    case ActivationFormat::bf16_rows:
      break;
  }
  return "bf16_rows";
}

std::string_view name_of(ReductionId reduction) noexcept {
  switch (reduction) {
    case ReductionId::f32_sequential:
      return "f32_sequential";
    case ReductionId::bf16_pairs:
      return "bf16_pairs";
    case ReductionId::q8_block32:
      return "q8_block32";
    case ReductionId::q8_slices:
      return "q8_slices";
    case ReductionId::float_slices:
      return "float_slices";
    case ReductionId::library:
      return "library";
    case ReductionId::float_steps:
      break;
  }
  return "float_steps";
}

}  // namespace imp
