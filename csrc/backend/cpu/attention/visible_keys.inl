// The queries of a tile in order, and the keys that each sees.
#pragma once

#include "backend/cpu/ops/cpu_ops.h"

namespace imp::cpu {
namespace {

// The cell behind the last key that a row of the tile sees.
inline int end_of_keys(const AttentionTile& tile, int row) {
  const int behind = tile.first_position + row + 1;
  if (tile.ends == nullptr) return behind;
  const int furthest = behind + tile.ahead;
  return tile.ends[row] < furthest ? tile.ends[row] : furthest;
}

// The first cell that a row of the tile sees.
inline int first_key(const AttentionTile& tile, int row) {
  if (tile.window == 0) return 0;
  if (tile.starts != nullptr) return tile.starts[row];
  const int first = tile.first_position + row - tile.window + 1;
  return first > 0 ? first : 0;
}

// Of a split, for a row of the tile.
inline KeyRange visible_keys(const AttentionTile& tile, int row, int split_position) {
  const int begin = first_key(tile, row) - split_position;
  const int end = end_of_keys(tile, row) - split_position;
  return {begin > 0 ? begin : 0, end < kSplitTokens ? end : kSplitTokens};
}

// Calls visit(query, row, head) in query order; heads are counted from the tile's first.
template <class Visit>
[[gnu::always_inline]] inline void for_each_query(const AttentionTile& tile, const Visit& visit) {
  int query = 0;
  for (int kv_head = 0; kv_head < tile.n_kv_heads; ++kv_head) {
    for (int row = 0; row < tile.n_rows; ++row) {
      for (int head = 0; head < tile.n_heads; ++head) visit(query++, row, kv_head * tile.n_heads + head);
    }
  }
}

}  // namespace
}  // namespace imp::cpu
