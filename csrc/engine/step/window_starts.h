// Where the windows of a batch's rows begin in sequences whose cells have positions with gaps.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/attention.h"
#include "engine/sequence/sequence.h"

namespace imp {

// Sets `starts` of the rows of sparse sequences, for layers with this window. `of_rows` has the sequence of each of
// `rows`. The values are kept in `starts`, which has room for all rows.
inline void set_starts(int window, std::span<SequenceRows> rows, std::span<const Sequence* const> of_rows,
                       std::vector<std::int32_t>& starts) {
  starts.clear();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!of_rows[i]->sparse) continue;
    const SparsePrompt& prompt = *of_rows[i]->sparse;
    const std::size_t first = starts.size();
    for (int row = 0; row < rows[i].n_rows; ++row) {
      starts.push_back(prompt.cell_from(prompt.position_of(rows[i].first_position + row) - window + 1));
    }
    rows[i].starts = std::span(starts).subspan(first);
  }
}

}  // namespace imp
