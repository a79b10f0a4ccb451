#include "model/vision/patch_positions.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace imp {
namespace {

// Between two places of a side of the table.
struct Between {
  std::size_t before = 0, after = 0;
  double part = 0;  // of the way from one to the other
};

// The ends of both sides lie on each other. A side of one patch lies at the beginning.
Between place_in_table(int at, int n, int table_side) {
  const int last = table_side - 1;
  const double place = static_cast<double>(at) * last / std::max(n - 1, 1);
  const auto before = static_cast<int>(place);
  return {.before = static_cast<std::size_t>(before),
          .after = static_cast<std::size_t>(std::min(before + 1, last)),
          .part = place - before};
}

}  // namespace

// Rows of tables that have one for each patch, row or column are looked up, others are interpolated.
void PatchPositions::add_to(Rows rows, Grid patches, int first, Rows scratch) {
  if (config_.axis_places > 0) return add_axes_to(rows, patches, first, scratch);
  if (config_.table_side > 0) {
    values_.resize(static_cast<std::size_t>(rows.n_rows) * static_cast<std::size_t>(rows.width));
    interpolate(patches, first, values_);
    backend_.write_rows(values_, scratch);
  } else {
    numbers_.resize(static_cast<std::size_t>(rows.n_rows));
    std::iota(numbers_.begin(), numbers_.end(), first);
    backend_.embed(numbers_, *weights_.positions, 1, scratch);
  }
  backend_.add(rows, scratch);
}

void PatchPositions::add_axes_to(Rows rows, Grid patches, int first, Rows scratch) {
  const auto n = static_cast<std::size_t>(rows.n_rows);
  const std::span<const std::int32_t> at = places(patches, first, rows.n_rows);
  const std::span<const std::int32_t> in_rows = at.first(n), in_columns = at.last(n);
  backend_.embed(in_columns, *weights_.axis_positions[0], 1, scratch);
  backend_.add(rows, scratch);
  backend_.embed(in_rows, *weights_.axis_positions[1], 1, scratch);
  backend_.add(rows, scratch);
}

// In float64, rounded once: a patch has the same bits in every piece.
void PatchPositions::interpolate(Grid patches, int first, std::span<float> out) const {
  const auto hidden = static_cast<std::size_t>(config_.layers.hidden_size);
  const auto side = static_cast<std::size_t>(config_.table_side);
  int patch = first;
  for (std::size_t begin = 0; begin < out.size(); begin += hidden, ++patch) {
    const Between row = place_in_table(patch / patches.columns, patches.rows, config_.table_side);
    const Between column = place_in_table(patch % patches.columns, patches.columns, config_.table_side);
    const auto values_at = [&](std::size_t table_row, std::size_t table_column) {
      return weights_.position_table.data() + (table_row * side + table_column) * hidden;
    };
    const float* const above_left = values_at(row.before, column.before);
    const float* const above_right = values_at(row.before, column.after);
    const float* const below_left = values_at(row.after, column.before);
    const float* const below_right = values_at(row.after, column.after);
    for (std::size_t i = 0; i < hidden; ++i) {
      const double above = (1 - column.part) * above_left[i] + column.part * above_right[i];
      const double below = (1 - column.part) * below_left[i] + column.part * below_right[i];
      out[begin + i] = static_cast<float>((1 - row.part) * above + row.part * below);
    }
  }
}

std::span<const std::int32_t> PatchPositions::places(Grid patches, int first, int n) {
  const auto n_patches = static_cast<std::size_t>(n);
  numbers_.resize(2 * n_patches);
  for (std::size_t i = 0; i < n_patches; ++i) {
    const int patch = first + static_cast<int>(i);
    numbers_[i] = patch / patches.columns;
    numbers_[n_patches + i] = patch % patches.columns;
  }
  return numbers_;
}

}  // namespace imp
