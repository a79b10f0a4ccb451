// The positions of a sequence whose prompt is evaluated in part.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace imp {

// The cells of a sequence in the KV cache are contiguous. The tokens of a sparse prompt in these cells have positions
// with gaps between them. Sampling, limits and reports use positions.
struct SparsePrompt {
  int n_dense = 0;                    // tokens at the beginning without a gap
  std::vector<std::int32_t> kept;     // the positions of the tokens after them
  std::vector<std::int32_t> history;  // the whole prompt, then the outputs and guesses
  int shift = 0;                      // of outputs: the number of tokens left out

  int position_of(int cell) const noexcept {
    if (cell < n_dense) return cell;
    const auto place = static_cast<std::size_t>(cell - n_dense);
    return place < kept.size() ? kept[place] : cell + shift;
  }
  // The first cell at or behind this position.
  int cell_from(int position) const noexcept {
    if (position < n_dense) return std::max(position, 0);
    const auto found = std::ranges::lower_bound(kept, position);
    const int cell = n_dense + static_cast<int>(found - kept.begin());
    return found == kept.end() ? std::max(cell, position - shift) : cell;
  }
};

}  // namespace imp
