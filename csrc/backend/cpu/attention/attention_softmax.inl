// The softmax weights of one query over a split, relative to the split's greatest score (online softmax, "Online
// normalizer calculation for softmax").
#pragma once

#include "backend/cpu/attention/attention_tile.inl"
#include "backend/cpu/lanes/math.h"

namespace imp::cpu {
namespace {

struct Softmax {
  float greatest, sum;
};

constexpr std::int32_t kLaneNumbers[kLanes] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

// Sets the scores of a panel's masked tokens to -infinity.
inline void mask_unseen(KeyRange seen, int panel, float* scores) {
  const IntLanes token = load_int(kLaneNumbers) + broadcast_int(panel);
  const Mask is_seen = less(broadcast_int(seen.begin - 1), token) & less(token, broadcast_int(seen.end));
  store(scores + panel, select(is_seen, load(scores + panel), broadcast(-__builtin_inff())));
}

// Turns the scaled dot products of one query into exp(score - greatest), or zero for masked keys, in the form that
// Storage multiplies. The sum adds the weights in that form.
template <class Storage>
inline Softmax weigh_scores(const AttentionTile& tile, KeyRange seen, float* scores) {
  const int first = seen.begin / kPanelTokens * kPanelTokens;
  if (tile.soft_cap > 0) {
    const Lanes cap = broadcast(tile.soft_cap);
    for (int t = first; t < seen.end; t += kPanelTokens) store(scores + t, cap * tanh(load(scores + t) / cap));
  }
  if (seen.begin > first) mask_unseen(seen, first, scores);
  if (seen.end % kPanelTokens > 0) mask_unseen(seen, seen.end / kPanelTokens * kPanelTokens, scores);
  Lanes most = load(scores + first);
  for (int t = first + kPanelTokens; t < seen.end; t += kPanelTokens) most = max(most, load(scores + t));
  const float greatest = max_of(most);
  Lanes sum_of_weights = zero();
  for (int t = first; t < seen.end; t += kPanelTokens) {
    const Lanes weight = exp(load(scores + t) - broadcast(greatest));
    sum_of_weights = sum_of_weights + Storage::store_weights(scores, t, weight);
  }
  return {greatest, sum(sum_of_weights)};
}

template <class Storage>
void weigh(const AttentionTile& tile, const KeyRange* seen, float* scores, const AttentionState& state) {
  for (int i = 0; i < tile.n_queries(); ++i) {
    if (seen[i].begin >= seen[i].end) continue;
    const Softmax softmax = weigh_scores<Storage>(tile, seen[i], scores + i * kScoreStride);
    state.greatest[i] = softmax.greatest;
    state.sum[i] = softmax.sum;
  }
}

}  // namespace
}  // namespace imp::cpu
