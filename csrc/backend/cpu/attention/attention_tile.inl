// Shared by the attention loops: the tile sizes.
#pragma once

#include "backend/cpu/attention/visible_keys.inl"

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

constexpr int kRoundedQueries = kAccumulators >= 16 ? 8 : 2;

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
