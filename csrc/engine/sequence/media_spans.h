// The media of a sequence: which of its cells are no text, and the position of each cell.
#pragma once

#include <span>
#include <vector>

#include "engine/data/media_span.h"

namespace imp {

// Spans beside the tokens of a sequence, in order. Positions count text by cells and a span by n_positions. They equal
// the numbers of the cells unless a span has fewer positions than cells.
class MediaSpans {
 public:
  bool empty() const noexcept { return spans_.empty(); }
  std::span<const MediaSpan> all() const noexcept { return spans_; }
  // The cell behind the last span; 0 without media.
  int last_end() const noexcept { return spans_.empty() ? 0 : spans_.back().end(); }

  void reserve(std::size_t n) { spans_.reserve(n); }
  // The span begins at or behind last_end().
  void append(MediaSpan span);
  // Keeps the spans that end at or before this cell.
  void truncate(int cell);
  void copy_from(const MediaSpans& other) { spans_ = other.spans_; }

  // The spans with a cell at or behind this one.
  std::span<MediaSpan> from(int cell) noexcept;
  std::span<const MediaSpan> from(int cell) const noexcept;
  // The span of the cell; null: it is text.
  const MediaSpan* span_at(int cell) const noexcept;
  // Whether a sequence may end before this cell: it is in no span, or the first of one.
  bool may_cut(int cell) const noexcept;
  // By which a row of the cell rotates, in this plane.
  int position_of(int cell, int plane) const noexcept;

 private:
  std::vector<MediaSpan> spans_;
};

}  // namespace imp
