// Dot products of a tile's queries with a split's keys. Tokens in lanes; sums over head_dim in order.
#pragma once

#include "backend/cpu/attention/attention_quantized.inl"
#include "backend/cpu/attention/attention_tile.inl"
#include "backend/cpu/kv/kv_storage.inl"
#include "backend/cpu/lanes/lanes_transpose.h"

namespace imp::cpu {
namespace {

// Adds one part of a step of q · k, then the parts after it.
template <class Storage, int n_queries, int n_panels, int part = 0>
[[gnu::always_inline]] inline void add_keys(const float* q, const void* const* k, int step,
                                            Lanes (&dot)[n_queries][n_panels]) {
  typename Storage::Part key[n_panels];
  for (int p = 0; p < n_panels; ++p) {
    key[p] = Storage::template read<part>(static_cast<typename Storage::Row>(k[p]), step * kPanelTokens);
  }
  for (int i = 0; i < n_queries; ++i) {
    const typename Storage::Part factor = Storage::template query<part>(q, step, i);
    for (int p = 0; p < n_panels; ++p) dot[i][p] = Storage::add(dot[i][p], key[p], factor);
  }
  if constexpr (part + 1 < Storage::kParts)
    add_keys<Storage, n_queries, n_panels, part + 1>(q, k, read_again(step), dot);
}

// scores[query][16 · panel ...] = scale · q · k for n_queries × n_panels at once.
template <class Storage, int n_queries, int n_panels>
inline void score_block(const float* q, const void* const* k, const AttentionTile& tile, float* scores) {
  Lanes dot[n_queries][n_panels];
  for (int i = 0; i < n_queries; ++i) {
    for (int p = 0; p < n_panels; ++p) dot[i][p] = zero();
  }
  for (int step = 0; step < tile.head_dim / Storage::kElements; ++step) add_keys<Storage>(q, k, step, dot);
  const Lanes scale = broadcast(tile.scale);
  for (int i = 0; i < n_queries; ++i) {
    for (int p = 0; p < n_panels; ++p) store(scores + i * kScoreStride + p * kPanelTokens, dot[i][p] * scale);
  }
}

// For n_queries queries, with as many panels at once as there are accumulators.
template <class Storage, int n_queries, int n_panels>
inline void score_panels(typename Storage::Queries q, const void* const* k, int count, const AttentionTile& tile,
                         float* scores) {
  for (; count >= n_panels; count -= n_panels) {
    if constexpr (Storage::kQuantized) {
      score_quantized<Storage, n_queries, n_panels>(q, k, tile, scores);
    } else {
      score_block<Storage, n_queries, n_panels>(q, k, tile, scores);
    }
    k += n_panels;
    scores += n_panels * kPanelTokens;
  }
  if constexpr (n_panels > 1) score_panels<Storage, n_queries, n_panels / 2>(q, k, count, tile, scores);
}

template <class Storage, int n_queries>
inline void score_queries(typename Storage::Queries q, int count, const void* const* k, int n_panels,
                          const AttentionTile& tile, float* scores) {
  constexpr int fit = power_within(kScoreAccumulators<Storage> / n_queries);
  constexpr int at_once = fit < kPanelsAtOnce ? fit : kPanelsAtOnce;
  for (; count >= n_queries; count -= n_queries) {
    score_panels<Storage, n_queries, at_once>(q, k, n_panels, tile, scores);
    q += n_queries;
    scores += n_queries * kScoreStride;
  }
  if constexpr (n_queries > 1) score_queries<Storage, power_within(n_queries - 1)>(q, count, k, n_panels, tile, scores);
}

// Stores queries as columns of words, so that a loop over some of them reads from one address.
template <class Storage>
void pack_queries(const AttentionTile& tile, float* packed) {
  constexpr int kTogether = kLanes * Storage::kWordElements;
  const QueryRows rows(tile);
  for (int first = 0; first < tile.n_queries(); first += kLanes) {
    const int count = tile.n_queries() - first < kLanes ? tile.n_queries() - first : kLanes;
    for (int d = 0; d < tile.head_dim; d += kTogether) {
      const int left = tile.head_dim - d;
      const int n = (left < kTogether ? left : kTogether) / Storage::kWordElements;
      auto* const to = reinterpret_cast<std::int32_t*>(packed) + d / Storage::kWordElements * kTileQueries + first;
      IntLanes words[kLanes];
      for (int i = 0; i < kLanes; ++i)
        words[i] = i < count ? Storage::factor_words(rows.first[first + i] + d, left) : broadcast_int(0);
      transpose(words);
      for (int i = 0; i < n; ++i) store_int(to + i * kTileQueries, words[i]);
    }
  }
}

// Stores the queries as blocks, each rotated as the keys are.
template <class Storage>
void quantize_queries(const AttentionTile& tile, float* packed) {
  const QueryRows rows(tile);
  for (int i = 0; i < tile.n_queries(); ++i) {
    auto* const blocks = reinterpret_cast<ActivationBlock*>(packed + i * padded_to_lanes(tile.head_dim));
    for_each_source<Storage>(rows.first[i], tile.head_dim,
                             [&](int block, const float* from) { quantize_block(from, blocks[block]); });
  }
}

// The scaled dot products of all queries with panels [begin, end), one row of `scores` per query.
template <class Storage>
inline void score_all(const AttentionTile& tile, const SplitPanels& panels, int begin, int end,
                      typename Storage::Queries q, float* scores) {
  const int per_kv_head = tile.n_rows * tile.n_heads;
  for (int first = begin; first < end; first += kPanelsAtOnce) {
    const int n_panels = end - first < kPanelsAtOnce ? end - first : kPanelsAtOnce;
    for (int head = 0; head < tile.n_kv_heads; ++head) {
      const void* k[kPanelsAtOnce];
      for (int p = 0; p < n_panels; ++p) {
        k[p] = static_cast<const char*>(panels.k[first + p]) + head * panels.k_head_bytes;
      }
      const int i = head * per_kv_head;
      score_queries<Storage, kScoreQueries<Storage>>(q + i, per_kv_head, k, n_panels, tile,
                                                     scores + i * kScoreStride + first * kPanelTokens);
    }
  }
}

template <class Storage>
void score(const AttentionTile& tile, const float* packed, const SplitPanels& panels, int begin, int end,
           float* scores) {
  if constexpr (Storage::kQuantized) {
    const void* q[kTileQueries];
    for (int i = 0; i < tile.n_queries(); ++i) q[i] = packed + i * padded_to_lanes(tile.head_dim);
    score_all<Storage>(tile, panels, begin, end, q, scores);
  } else {
    score_all<Storage>(tile, panels, begin, end, packed, scores);
  }
}

}  // namespace
}  // namespace imp::cpu
