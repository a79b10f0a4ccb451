// Shared by the attention loops: the keys that a query sees, and the tile sizes.
#pragma once

#include "backend/cpu/ops/cpu_ops.h"

namespace imp::cpu {
namespace {

// Accumulators that fit in registers: of AVX-512's 32 registers, or of AVX2's 8 pairs.
#if defined(__AVX512F__)
constexpr int kAccumulators = 16;
#else
constexpr int kAccumulators = 5;
#endif

// Queries that share one read of K and of V. With few registers, many queries with one vector each are fastest.
// Quantized blocks need accumulators in addition to the totals.
template <class Storage>
constexpr int kScoreAccumulators = Storage::kQuantized ? kAccumulators / 2 : kAccumulators;
template <class Storage>
constexpr int kScoreQueries =
    kAccumulators >= 16 || Storage::kQuantized ? kScoreAccumulators<Storage> / 2 : kAccumulators;
template <class Storage>
constexpr int kValueQueries = kAccumulators >= 16   ? 8
                              : Storage::kQuantized ? 2
                                                    : kAccumulators;

// The greatest power of two up to 8 that is at most n.
constexpr int power_within(int n) {
  return n >= 8 ? 8 : n >= 4 ? 4 : n >= 2 ? 2 : 1;
}

// Returns its argument, but hides that from the compiler, so that it reloads values instead of keeping them in
// registers.
inline int read_again(int place) {
  __asm__("" : "+r"(place));
  return place;
}

// Panels read at the same time: with this number of memory streams reading is fastest.
constexpr int kPanelsAtOnce = 4;

// Keys of a split that a query sees, counted from the split's start: [begin, end), empty if begin >= end.
struct KeyRange {
  int begin, end;
};

inline KeyRange visible_keys(const AttentionTile& tile, int row, int split_position) {
  const int position = tile.first_position + row;
  const int first = tile.window > 0 && position - tile.window + 1 > 0 ? position - tile.window + 1 : 0;
  const int begin = first - split_position;
  const int end = position + 1 - split_position;
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

// The rows of all queries.
struct QueryRows {
  const float* first[kTileQueries];

  explicit QueryRows(const AttentionTile& tile) {
    for_each_query(tile,
                   [&](int i, int row, int head) { first[i] = tile.q + row * tile.row_stride + head * tile.head_dim; });
  }
};

// The values of one kv head in a split, as addresses of panels.
struct HeadValues {
  const void* const* panels;
  std::ptrdiff_t head_offset;
  int width;  // head_dim, padded

  // Start of the values of a token's panel.
  const void* panel(int token) const { return static_cast<const char*>(panels[token / kPanelTokens]) + head_offset; }
};

}  // namespace
}  // namespace imp::cpu
