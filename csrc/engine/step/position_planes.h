// The positions of a batch for models whose rows have several (M-RoPE).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/attention.h"
#include "engine/sequence/sequence.h"

namespace imp {

// Appends the planes behind the first to `positions`, which has that of every row. `of_rows` has the sequence of each
// of `rows`.
inline void add_planes(int n_planes, std::span<const SequenceRows> rows, std::span<const Sequence* const> of_rows,
                       std::vector<std::int32_t>& positions) {
  for (int plane = 1; plane < n_planes; ++plane) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      for (int row = 0; row < rows[i].n_rows; ++row) {
        positions.push_back(of_rows[i]->position_of(rows[i].first_position + row, plane));
      }
    }
  }
}

}  // namespace imp
