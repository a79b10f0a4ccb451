// Attention of a tile of queries over one split of keys, and the merge of splits.
//
// Scores have tokens in their lanes and sum over head_dim in order; values have head_dim in their lanes and sum over
// tokens in order. So no sum ever crosses lanes except that of the softmax weights, and how many queries, panels or
// lanes a loop takes at once changes no bit. Memory is read in the order in which it lies: a few panels at a time, for
// all kv heads of the tile. Keys that a query may not see are not read into anything it keeps: the
// cache may hold NaN there.
#pragma once

#include "backend/cpu/attention_scores.inl"
#include "backend/cpu/attention_softmax.inl"
#include "backend/cpu/attention_values.inl"

namespace imp::cpu {
namespace {

template <class Kept>
void attend_split(const AttentionTile& tile, const SplitPanels& panels, SplitScratch scratch,
                  const AttentionState& state) {
  const int n_queries = tile.n_queries();
  const int width = padded_to_lanes(tile.head_dim);
  Visible seen[kTileQueries];
  Visible any = {kSplitTokens, 0};
  for (int i = 0; i < n_queries; ++i) {
    seen[i] = visible(tile, tile.row(i), panels.first_position);
    if (seen[i].begin >= seen[i].end) continue;
    if (seen[i].begin < any.begin) any.begin = seen[i].begin;
    if (seen[i].end > any.end) any.end = seen[i].end;
  }
  if (any.begin >= any.end) return;

  score<Kept>(tile, panels, any.begin / kPanelTokens, (any.end + kPanelTokens - 1) / kPanelTokens, scratch);
  for (int i = 0; i < n_queries; ++i) {
    if (seen[i].begin >= seen[i].end) continue;
    const Softmax softmax = weigh_scores<Kept>(tile, seen[i], scratch.scores + i * kSplitTokens);
    state.greatest[i] = softmax.greatest;
    state.sum[i] = softmax.sum;
    for (int d = 0; d < width; d += kLanes) store(state.values + i * width + d, zero());
  }
  add_all_values<Kept>(tile, panels, seen, any, scratch.scores, state.values);
}

void merge(const AttentionTile& tile, int split_position, const AttentionState& split, const AttentionState& into) {
  const int width = padded_to_lanes(tile.head_dim);
  for (int i = 0; i < tile.n_queries(); ++i) {
    const Visible seen = visible(tile, tile.row(i), split_position);
    if (seen.begin >= seen.end) continue;
    const float* from = split.values + i * width;
    float* to = into.values + i * width;
    const int position = tile.first_position + tile.row(i);
    const bool is_first = split_position == 0 || (tile.window > 0 && position - tile.window + 1 >= split_position);
    if (is_first) {
      into.greatest[i] = split.greatest[i];
      into.sum[i] = split.sum[i];
      for (int d = 0; d < width; d += kLanes) store(to + d, load(from + d));
      continue;
    }
    const float greatest = into.greatest[i] > split.greatest[i] ? into.greatest[i] : split.greatest[i];
    float factors[kLanes] = {into.greatest[i] - greatest, split.greatest[i] - greatest};
    store(factors, exp(load(factors)));
    into.greatest[i] = greatest;
    into.sum[i] = __builtin_fmaf(split.sum[i], factors[1], into.sum[i] * factors[0]);
    const Lanes old_factor = broadcast(factors[0]);
    const Lanes new_factor = broadcast(factors[1]);
    for (int d = 0; d < width; d += kLanes) store(to + d, fma(load(from + d), new_factor, load(to + d) * old_factor));
  }
}

void finish(const AttentionTile& tile, const AttentionState& state, float* out, std::ptrdiff_t out_stride) {
  const int width = padded_to_lanes(tile.head_dim);
  for (int i = 0; i < tile.n_queries(); ++i) {
    float* to = out + tile.row(i) * out_stride + tile.head(i) * tile.head_dim;
    const Lanes sum_of_weights = broadcast(state.sum[i]);
    for (int d = 0; d < tile.head_dim; d += kLanes) {
      store_up_to(to + d, load(state.values + i * width + d) / sum_of_weights, tile.head_dim - d);
    }
  }
}

}  // namespace
}  // namespace imp::cpu
