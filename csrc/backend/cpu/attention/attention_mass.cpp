// Scores, softmax and means of one query's heads.
#include "backend/cpu/attention/attention_mass.h"

#include <algorithm>

#include "backend/cpu/attention/attention.h"
#include "base/arena.h"
#include "base/ceil_div.h"
#include "base/error.h"

namespace imp::cpu {
namespace {

constexpr int kReach = kMassPool / 2;  // neighbours on either side
constexpr int kKeysPerTask = 1024;
constexpr int kScoreFloats = kTileQueries * kScoreStride;

std::size_t floats_of_thread(int head_dim) {
  return static_cast<std::size_t>(kScoreFloats + kTileQueries * padded_to_lanes(head_dim));
}
// Zeros stand before and after the weights.
std::size_t floats_of_row(int max_context) {
  return static_cast<std::size_t>(padded_to_lanes(max_context + 2 * kReach));
}

}  // namespace

struct AttentionMass::Call {
  const CpuKvPool& pool;
  int layer;
  const SequenceRows& sequence;
  const AttentionParams& params;
  const float* q;
  int first_key;
  std::span<float> into;

  int n_keys() const { return static_cast<int>(into.size()); }
  int end_key() const { return first_key + n_keys(); }
  int group() const { return params.n_heads / params.n_kv_heads; }
};

std::size_t AttentionMass::scratch_bytes(int max_context, const AttentionParams& largest) const {
  return sizeof(float) * (floats_of_thread(largest.head_dim) * static_cast<std::size_t>(threads_.n_threads()) +
                          floats_of_row(max_context) * static_cast<std::size_t>(largest.n_heads));
}

void AttentionMass::reserve(int max_context, const AttentionParams& largest) {
  thread_floats_ = std::max(thread_floats_, floats_of_thread(largest.head_dim));
  row_floats_ = std::max(row_floats_, floats_of_row(max_context));
  n_heads_ = std::max(n_heads_, largest.n_heads);
  const std::size_t n_of_threads = thread_floats_ * static_cast<std::size_t>(threads_.n_threads());
  const std::size_t n_bytes = sizeof(float) * (n_of_threads + row_floats_ * static_cast<std::size_t>(n_heads_));
  if (n_bytes > n_bytes_) {
    scratch_ = Arena(n_bytes).allocate(n_bytes);
    n_bytes_ = n_bytes;
  }
  weights_ = reinterpret_cast<float*>(scratch_.get()) + n_of_threads;
}

float* AttentionMass::weights_of(int head) const noexcept {
  return weights_ + static_cast<std::size_t>(head) * row_floats_ + kReach;
}

// Of the query heads of one kv head, with the keys of one split.
void AttentionMass::score(const Call& call, int kv_head, int split, int thread) {
  float* const memory = reinterpret_cast<float*>(scratch_.get()) + static_cast<std::size_t>(thread) * thread_floats_;
  float* const queries = memory + kScoreFloats;
  const KeyOps& keys = ops_.keys_of(call.pool.geometry().layer(call.layer).types.k);
  const SplitPanels panels = panels_of(call.pool, call.layer, call.sequence, kv_head, split);
  const int begin = std::max(call.first_key, panels.first_position);
  const int end = std::min(call.end_key(), panels.first_position + kSplitTokens);
  for (int first = 0; first < call.group(); first += kTileQueries) {
    const int first_head = kv_head * call.group() + first;
    const AttentionTile tile = {.q = call.q + first_head * call.params.head_dim,
                                .row_stride = 0,
                                .n_rows = 1,
                                .n_kv_heads = 1,
                                .n_heads = std::min(kTileQueries, call.group() - first),
                                .first_position = call.sequence.first_position,
                                .head_dim = call.params.head_dim,
                                .scale = call.params.scale,
                                .soft_cap = 0,
                                .window = 0,
                                .sinks = nullptr,
                                .ends = nullptr,
                                .ahead = 0,
                                .starts = nullptr};
    keys.pack_queries(tile, queries);
    keys.score(tile, queries, panels, 0, ceil_div(end - panels.first_position, kPanelTokens), memory);
    for (int i = 0; i < tile.n_heads; ++i) {
      const float* const scores = memory + i * kScoreStride;
      std::copy(scores + (begin - panels.first_position), scores + (end - panels.first_position),
                weights_of(first_head + i) + (begin - call.first_key));
    }
  }
}

void AttentionMass::weigh(const Call& call, int head) {
  float* const weights = weights_of(head);
  if (call.params.soft_cap > 0) ops_.soft_cap(weights, call.n_keys(), call.params.soft_cap);
  ops_.softmax(weights, call.n_keys());
  std::fill_n(weights - kReach, kReach, 0.0F);
  std::fill_n(weights + call.n_keys(), kReach, 0.0F);
}

void AttentionMass::take_greatest(const Call& call, int first, int end) {
  for (int head = 0; head < call.params.n_heads; ++head) {
    const float* const weights = weights_of(head);
    for (int i = first; i < end; ++i) {
      float sum = 0;
      for (int offset = -kReach; offset <= kReach; ++offset) sum += weights[i + offset];
      float& greatest = call.into[static_cast<std::size_t>(i)];
      greatest = std::max(greatest, sum / kMassPool);
    }
  }
}

void AttentionMass::run(const CpuKvPool& pool, int layer, const SequenceRows& sequence, const AttentionParams& params,
                        Rows q, int first_key, std::span<float> into) {
  const Call call = {pool, layer, sequence, params, q.data + sequence.first_row * q.stride, first_key, into};
  IMP_CHECK(sequence.n_rows == 1 && call.n_keys() > 0 && call.end_key() <= sequence.first_position);
  IMP_CHECK(floats_of_row(call.n_keys()) <= row_floats_);
  const int first_split = first_key / kSplitTokens;
  const int n_splits = ceil_div(call.end_key(), kSplitTokens) - first_split;
  threads_.run(params.n_kv_heads * n_splits,
               [&](int task, int thread) { score(call, task / n_splits, first_split + task % n_splits, thread); });
  threads_.run(params.n_heads, [&](int head, int) { weigh(call, head); });
  threads_.run(ceil_div(call.n_keys(), kKeysPerTask), [&](int task, int) {
    take_greatest(call, task * kKeysPerTask, std::min(call.n_keys(), (task + 1) * kKeysPerTask));
  });
}

}  // namespace imp::cpu
