// The softmax of one query over a split: dot products become weights.
#pragma once

#include "backend/cpu/attention_tile.inl"
#include "backend/cpu/math.h"

namespace imp::cpu {
namespace {

struct Softmax {
  float greatest, sum;
};

// Turns the raw dot products of one query into exp(score - greatest), zero outside what it sees, as Kept wants them;
// their sum is of what it then uses.
template <class Kept>
inline Softmax weigh_scores(const AttentionTile& tile, Visible seen, float* scores) {
  std::int32_t lane_numbers[kLanes];
  for (int i = 0; i < kLanes; ++i) lane_numbers[i] = i;
  const IntLanes lanes = load_int(lane_numbers);
  const Lanes least = broadcast(-__builtin_inff());
  const int first = seen.begin / kPanelTokens * kPanelTokens;

  Lanes most = least;
  for (int t = first; t < seen.end; t += kPanelTokens) {
    Lanes score = load(scores + t) * broadcast(tile.scale);
    if (tile.soft_cap > 0) {
      const Lanes cap = broadcast(tile.soft_cap);
      score = cap * tanh(score / cap);
    }
    if (t < seen.begin || t + kPanelTokens > seen.end) {
      const IntLanes token = lanes + broadcast_int(t);
      const Mask is_seen = less(broadcast_int(seen.begin - 1), token) & less(token, broadcast_int(seen.end));
      score = select(is_seen, score, least);
    }
    store(scores + t, score);
    most = max(most, score);
  }
  const float greatest = max_of(most);
  Lanes sum_of_weights = zero();
  for (int t = first; t < seen.end; t += kPanelTokens) {
    const Lanes weight = exp(load(scores + t) - broadcast(greatest));
    sum_of_weights = sum_of_weights + Kept::store_weights(scores, t, weight);
  }
  return {greatest, sum(sum_of_weights)};
}

}  // namespace
}  // namespace imp::cpu
