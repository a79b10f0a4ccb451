// A part of a medium in a sequence: the cells that hold its encoding.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "model/media_encoder.h"

namespace imp {

// Consecutive cells with the encoding of one part, a row in each.
struct MediaSpan {
  int first = 0;  // cell; of a RunCommand: among its tokens
  int n_cells = 0;
  int n_positions = 0;           // at most n_cells, and equal unless rows have several positions
  std::array<int, 2> grid = {};  // rows and columns of its cells if these decide their positions, else 0
  bool is_atomic = false;        // its cells see each other: one step evaluates all of them
  int part = 0;
  std::shared_ptr<const Media> media;  // kept as long as the encoding may be needed again

  // The engine's:
  std::int32_t number = 0;  // what `tokens` of a sequence has in each of its cells
  int position = 0;         // of its first cell
  bool is_encoded = false;  // its encoding is there: a step may evaluate its cells

  int end() const noexcept { return first + n_cells; }
};

}  // namespace imp
