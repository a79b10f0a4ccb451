// Finds spans by cell.
#include "engine/sequence/media_spans.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace imp {

void MediaSpans::append(MediaSpan span) {
  IMP_CHECK(span.n_cells > 0 && span.first >= last_end());
  span.position = position_of(span.first, 0);
  spans_.push_back(std::move(span));
}

void MediaSpans::truncate(int cell) {
  while (last_end() > cell) spans_.pop_back();
}

std::span<MediaSpan> MediaSpans::from(int cell) noexcept {
  if (cell >= last_end()) return {};
  return {std::ranges::upper_bound(spans_, cell, {}, &MediaSpan::end), spans_.end()};
}

std::span<const MediaSpan> MediaSpans::from(int cell) const noexcept {
  if (cell >= last_end()) return {};
  return {std::ranges::upper_bound(spans_, cell, {}, &MediaSpan::end), spans_.end()};
}

const MediaSpan* MediaSpans::span_at(int cell) const noexcept {
  const std::span<const MediaSpan> found = from(cell);
  return found.empty() || found.front().first > cell ? nullptr : &found.front();
}

bool MediaSpans::may_cut(int cell) const noexcept {
  const MediaSpan* const span = span_at(cell);
  return span == nullptr || span->first == cell;
}

// Of text: its distance from the span before it, whose positions are known.
int MediaSpans::position_of(int cell, int plane) const noexcept {
  if (const MediaSpan* const span = span_at(cell)) {
    const int place = cell - span->first;
    const int columns = span->grid[1];
    if (columns == 0) return span->position + place;
    return span->position + (plane == 0 ? 0 : plane == 1 ? place / columns : place % columns);
  }
  const auto behind = spans_.end() - static_cast<std::ptrdiff_t>(from(cell).size());
  if (behind == spans_.begin()) return cell;
  const MediaSpan& before = *std::prev(behind);
  return before.position + before.n_positions + cell - before.end();
}

}  // namespace imp
