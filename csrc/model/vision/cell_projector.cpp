#include "model/vision/cell_projector.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "model/layer/row_views.h"

namespace imp {
namespace {

bool has_second(const Projector& projector) noexcept {
  return !projector.second.empty();
}

bool has_weight(const CellNorm& norm) noexcept {
  return !norm.tensor.empty();
}

bool needs_inner(const VisionConfig& config) noexcept {
  return config.reduction == Reduction::mean || std::ranges::any_of(config.projectors, has_second);
}

}  // namespace

CellProjector::CellProjector(const VisionConfig& config, const VisionWeights& weights, Backend& backend,
                             Workspace& workspace)
    : config_(config), weights_(weights), backend_(backend) {
  declare(config, workspace, cells_, inner_);
}

void CellProjector::declare(const VisionConfig& config, Workspace& workspace, Rows& cells, Rows& inner) {
  workspace.add(cells, config.cell_width());
  if (needs_inner(config)) workspace.add(inner, config.cell_width());
}

void CellProjector::add_needs(const VisionConfig& config, WorkspaceNeeds& needs) {
  if (config.reduction == Reduction::mean) needs.ops.push_back(Op::scale);
  if (config.is_standardized) needs.ops.push_back(Op::standardize);
  for (const Projector& projector : config.projectors) {
    if (projector.norm && !has_weight(*projector.norm)) needs.ops.push_back(Op::norm_heads);
    if (projector.norm && projector.norm->kind == NormKind::layer) needs.ops.push_back(Op::layer_norm);
    if (has_second(projector)) needs.ops.push_back(Op::activate);
  }
}

double CellProjector::cost_of_cell(const VisionConfig& config, int projector) noexcept {
  const double width = config.cell_width(), slice = config.slice_width();
  return width * (has_second(config.projectors[static_cast<std::size_t>(projector)]) ? width + slice : slice);
}

void CellProjector::project(int projector, Rows patches, const CellRange& range, Rows out) {
  const auto at = static_cast<std::size_t>(projector);
  const Projector& config = config_.projectors[at];
  const ProjectorWeights& weights = weights_.projectors[at];
  reduce(patches, range);
  if (config.norm) normalize(*config.norm, weights);
  const bool is_one = !has_second(config);
  backend_.linear(cells_, std::array{LinearTerm{weights.first.get(), weights.first_bias.get(), is_one ? out : inner_}});
  if (is_one) return;
  backend_.activate(PlainActivation::gelu_erf, {}, inner_);
  backend_.linear(inner_, std::array{LinearTerm{weights.second.get(), weights.second_bias.get(), out}});
}

void CellProjector::normalize(const CellNorm& config, const ProjectorWeights& weights) {
  const Norm norm = {.weight = weights.norm.weight.get(),
                     .epsilon = config.epsilon,
                     .reader = weights.first.get(),
                     .bias = weights.norm.bias.get()};
  if (!has_weight(config)) return backend_.norm_heads(cells_, cells_.width, norm, cells_);
  config.kind == NormKind::rms ? backend_.rms_norm(cells_, norm, cells_)
                               : backend_.layer_norm(cells_, cells_.width, norm, cells_);
}

// The patches of a square, in the order of its rows.
void CellProjector::reduce(Rows patches, const CellRange& range) {
  const int hidden = config_.layers.hidden_size, n_places = config_.patches_in_cell();
  const bool is_mean = config_.reduction == Reduction::mean;
  for (int place = 0; place < n_places; ++place) {
    if (!is_mean) {
      gather(patches, range, place, columns(cells_, place * hidden, hidden));
    } else if (place == 0) {
      gather(patches, range, place, cells_);
    } else {
      gather(patches, range, place, inner_);
      backend_.add(cells_, inner_);
    }
  }
  if (is_mean) backend_.scale(cells_, config_.mean_scale / static_cast<float>(n_places));
  if (config_.is_standardized) backend_.standardize(cells_, *weights_.mean, *weights_.factors);
}

// Patch `place` of each square.
void CellProjector::gather(Rows patches, const CellRange& range, int place, Rows out) {
  const int side = config_.reduced_side, columns = range.patches.columns, cells_a_row = columns / side;
  sources_.resize(static_cast<std::size_t>(range.n));
  for (int i = 0; i < range.n; ++i) {
    const int cell = range.first + i;
    const int row = cell / cells_a_row * side + place / side, column = cell % cells_a_row * side + place % side;
    sources_[static_cast<std::size_t>(i)] = row * columns + column;
  }
  backend_.gather_rows(patches, sources_, out);
}

}  // namespace imp
