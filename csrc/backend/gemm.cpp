// Names and sizes of layouts, formats and reductions.
#include "backend/gemm.h"

#include "base/ceil_div.h"

namespace imp {

std::string refusal(const GemmKernel& kernel, const GemmProblem& problem, const DeviceCaps& caps) {
  if (const char* const reason = kernel.refuses(problem, caps)) return reason;
  if (caps.cpu.includes(kernel.needs)) return {};
  return "needs " + missing_features(caps.cpu, kernel.needs);
}

std::size_t packed_bytes(const GemmProblem& problem, WeightLayout layout) noexcept {
  const std::int64_t panels = ceil_div(problem.n, kPanelRows);
  const std::int64_t rows = layout == WeightLayout::file ? problem.n : panels * kPanelRows;
  const std::int64_t tiles = ceil_div(problem.k, kTileDepth);
  const std::int64_t elements = layout == WeightLayout::tile16 ? tiles * kTileDepth : problem.k;
  return static_cast<std::size_t>(rows * *row_bytes(problem.weight, elements));
}

std::string_view name_of(WeightLayout layout) noexcept {
  constexpr std::string_view kNames[] = {"file", "panel16", "tile16"};
  return kNames[static_cast<std::size_t>(layout)];
}

std::string_view name_of(ActivationFormat format) noexcept {
  constexpr ByFormat<std::string_view> kNames{
      {{"f32", "bf16", "q8_block32", "q8_rows", "f16_rows", "f16_even_odd", "bf16_rows"}}};
  return kNames[format];
}

std::string_view name_of(ReductionId reduction) noexcept {
  constexpr std::string_view kNames[] = {"f32_sequential", "bf16_pairs",  "q8_block32", "q8_slices",
                                         "float_slices",   "float_steps", "library"};
  return kNames[static_cast<std::size_t>(reduction)];
}

}  // namespace imp
