// The merge of the softmaxes of splits, in ascending order, and the division at the end.
#pragma once

#include "backend/cpu/attention/visible_keys.inl"
#include "backend/cpu/lanes/math.h"

namespace imp::cpu {
namespace {

void merge(const AttentionTile& tile, int split_position, const AttentionState& split, const AttentionState& into) {
  const int n_queries = tile.n_queries();
  const int width = padded_to_lanes(tile.head_dim);
  // For all queries at once. Results of queries that see no key of the split are undefined.
  float greatest[kTileQueries], old_factors[kTileQueries], new_factors[kTileQueries];
  for (int i = 0; i < n_queries; i += kLanes) {
    const Lanes before = load_up_to(into.greatest + i, n_queries - i);
    const Lanes here = load_up_to(split.greatest + i, n_queries - i);
    const Lanes most = max(before, here);
    store(greatest + i, most);
    store(old_factors + i, exp(before - most));
    store(new_factors + i, exp(here - most));
  }
  for_each_query(tile, [&](int i, int row, int) {
    const KeyRange seen = visible_keys(tile, row, split_position);
    if (seen.begin >= seen.end) return;
    const float* from = split.values + i * width;
    float* to = into.values + i * width;
    const bool is_first = first_key(tile, row) >= split_position;
    if (is_first) {
      into.greatest[i] = split.greatest[i];
      into.sum[i] = split.sum[i];
      for (int d = 0; d < width; d += kLanes) store(to + d, load(from + d));
      return;
    }
    into.greatest[i] = greatest[i];
    into.sum[i] = __builtin_fmaf(split.sum[i], new_factors[i], into.sum[i] * old_factors[i]);
    const Lanes old_factor = broadcast(old_factors[i]);
    const Lanes new_factor = broadcast(new_factors[i]);
    for (int d = 0; d < width; d += kLanes) store(to + d, fma(load(from + d), new_factor, load(to + d) * old_factor));
  });
}

// The divisors of the queries' values. A sink enters here, after all splits.
inline void sums_with_sinks(const AttentionTile& tile, const AttentionState& state, float* sums) {
  const int n_queries = tile.n_queries();
  for_each_query(tile, [&](int i, int, int head) { sums[i] = tile.sinks[head]; });
  for (int i = 0; i < n_queries; i += kLanes) {
    const int n = n_queries - i;
    const Lanes of_sinks = exp(load_up_to(sums + i, n) - load_up_to(state.greatest + i, n));
    store_up_to(sums + i, load_up_to(state.sum + i, n) + of_sinks, n);
  }
}

void finish(const AttentionTile& tile, const AttentionState& state, float* out, std::ptrdiff_t out_stride) {
  const int width = padded_to_lanes(tile.head_dim);
  float with_sinks[kTileQueries];
  if (tile.sinks != nullptr) sums_with_sinks(tile, state, with_sinks);
  const float* const sums = tile.sinks != nullptr ? with_sinks : state.sum;
  for_each_query(tile, [&](int i, int row, int head) {
    float* to = out + row * out_stride + head * tile.head_dim;
    const Lanes sum_of_weights = broadcast(sums[i]);
    for (int d = 0; d < tile.head_dim; d += kLanes) {
      store_up_to(to + d, load(state.values + i * width + d) / sum_of_weights, tile.head_dim - d);
    }
  });
}

}  // namespace
}  // namespace imp::cpu
