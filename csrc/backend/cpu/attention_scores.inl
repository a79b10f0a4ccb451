// Dot products of a tile's queries with a split's keys: tokens in the lanes, sums over head_dim in order.
#pragma once

#include "backend/cpu/attention_quantized.inl"
#include "backend/cpu/attention_tile.inl"
#include "backend/cpu/kv_kept.inl"

namespace imp::cpu {
namespace {

// Adds one part of a step of q · k to the dot products, and the parts after it.
template <class Kept, int n_queries, int n_panels, int part = 0>
[[gnu::always_inline]] inline void add_keys(const void* const* q, const void* const* k, int step,
                                            Lanes (&dot)[n_queries][n_panels]) {
  typename Kept::Part key[n_panels];
  for (int p = 0; p < n_panels; ++p) {
    key[p] = Kept::template read<part>(static_cast<typename Kept::Row>(k[p]), step * kPanelTokens);
  }
  for (int i = 0; i < n_queries; ++i) {
    const typename Kept::Part factor = Kept::template factor<part>(q[i], step);
    for (int p = 0; p < n_panels; ++p) dot[i][p] = Kept::add(dot[i][p], key[p], factor);
  }
  if constexpr (part + 1 < Kept::kParts) add_keys<Kept, n_queries, n_panels, part + 1>(q, k, read_again(step), dot);
}

// scores[query][16 · panel ...] = q · k for n_queries × n_panels at once.
template <class Kept, int n_queries, int n_panels>
inline void score_block(const void* const* q, const void* const* k, int head_dim, float* scores) {
  Lanes dot[n_queries][n_panels];
  for (int i = 0; i < n_queries; ++i) {
    for (int p = 0; p < n_panels; ++p) dot[i][p] = zero();
  }
  for (int step = 0; step < head_dim / Kept::kElements; ++step) add_keys<Kept>(q, k, step, dot);
  for (int i = 0; i < n_queries; ++i) {
    for (int p = 0; p < n_panels; ++p) store(scores + i * kSplitTokens + p * kPanelTokens, dot[i][p]);
  }
}

// For n_queries queries, as many panels at once as there are accumulators.
template <class Kept, int n_queries, int n_panels>
inline void score_panels(const void* const* q, const void* const* k, int count, int head_dim, float* scores) {
  for (; count >= n_panels; count -= n_panels) {
    if constexpr (Kept::kQuantized) {
      score_quantized<n_queries, n_panels>(q, k, head_dim, scores);
    } else {
      score_block<Kept, n_queries, n_panels>(q, k, head_dim, scores);
    }
    k += n_panels;
    scores += n_panels * kPanelTokens;
  }
  if constexpr (n_panels > 1) score_panels<Kept, n_queries, n_panels / 2>(q, k, count, head_dim, scores);
}

template <class Kept, int n_queries>
inline void score_queries(const void* const* q, int count, const void* const* k, int n_panels, int head_dim,
                          float* scores) {
  constexpr int fit = power_within(kScoreAccumulators<Kept> / n_queries);
  constexpr int at_once = fit < kPanelsAtOnce ? fit : kPanelsAtOnce;
  for (; count >= n_queries; count -= n_queries) {
    score_panels<Kept, n_queries, at_once>(q, k, n_panels, head_dim, scores);
    q += n_queries;
    scores += n_queries * kSplitTokens;
  }
  if constexpr (n_queries > 1)
    score_queries<Kept, power_within(n_queries - 1)>(q, count, k, n_panels, head_dim, scores);
}

// The raw dot products of all queries with the panels [begin, end).
template <class Kept>
inline void score(const AttentionTile& tile, const SplitPanels& panels, int begin, int end, SplitScratch scratch) {
  const void* q[kTileQueries];
  for (int i = 0; i < tile.n_queries(); ++i) {
    q[i] = Kept::factors_of(query(tile, i), tile.head_dim, scratch.queries + i * padded_to_lanes(tile.head_dim));
  }
  const int per_kv_head = tile.n_rows * tile.n_heads;
  for (int first = begin; first < end; first += kPanelsAtOnce) {
    const int n_panels = end - first < kPanelsAtOnce ? end - first : kPanelsAtOnce;
    for (int head = 0; head < tile.n_kv_heads; ++head) {
      const void* k[kPanelsAtOnce];
      for (int p = 0; p < n_panels; ++p) {
        k[p] = static_cast<const char*>(panels.k[first + p]) + head * panels.k_head_bytes;
      }
      const int i = head * per_kv_head;
      score_queries<Kept, kScoreQueries<Kept>>(q + i, per_kv_head, k, n_panels, tile.head_dim,
                                               scratch.scores + i * kSplitTokens + first * kPanelTokens);
    }
  }
}

}  // namespace
}  // namespace imp::cpu
