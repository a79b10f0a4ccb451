// Splits a call into tiles and tasks and runs them. Merges the states of splits in position order.
#include "backend/cpu/attention/attention.h"

#include <algorithm>
#include <string>

#include "backend/backend.h"
#include "backend/cpu/attention/visible_keys.inl"
#include "base/arena.h"
#include "base/ceil_div.h"
#include "base/error.h"

namespace imp::cpu {
namespace {

constexpr int kScoreFloats = kTileQueries * kScoreStride;

std::size_t state_floats(int n_queries, int head_dim) {
  return static_cast<std::size_t>(padded_to_lanes(n_queries * (padded_to_lanes(head_dim) + 2)));
}

// Values first: they are accessed as whole vectors.
AttentionState state_at(float* memory, const AttentionTile& queries) {
  const int n_queries = queries.n_queries();
  float* behind = memory + n_queries * padded_to_lanes(queries.head_dim);
  return {.greatest = behind, .sum = behind + n_queries, .values = memory};
}

int group_size(const AttentionParams& params) {
  return params.n_heads / params.n_kv_heads;
}

int splits_of(int n_tokens) {
  return ceil_div(n_tokens, kSplitTokens);
}

int end_of_keys(const AttentionTile& tile) {
  int end = 0;
  for (int row = 0; row < tile.n_rows; ++row) end = std::max(end, end_of_keys(tile, row));
  return end;
}

// The most keys that a row of the sequence may see.
int most_keys(const AttentionParams& params, const SequenceRows& sequence) {
  const int n_tokens = sequence.first_position + sequence.n_rows;
  if (params.window == 0) return n_tokens;
  const int n_ahead = sees_ahead(params, sequence) ? std::min(params.ahead, sequence.n_rows) : 0;
  return std::min(n_tokens, params.window + n_ahead);
}

// Least number of tasks per thread, so that threads finish at about the same time.
constexpr int kTasksPerThread = 4;

// Scratch for the splits of tiles. Only tiles above a share of the call's work are split, so the scratch is bounded. If
// it is used up, further tiles are not split: this costs time but changes no bit.
std::size_t states_floats(int max_context, int head_dim, int n_threads) {
  if (n_threads == 1) return 0;
  constexpr std::size_t kMax = (std::size_t{64} << 20) / sizeof(float);
  const auto slots =
      static_cast<std::size_t>(kTasksPerThread * n_threads) * static_cast<std::size_t>(splits_of(max_context));
  return std::min(slots * state_floats(kTileQueries, head_dim), kMax);
}

// Scratch of a tile over a split, and two states: of the split and of all splits before it.
std::size_t split_floats(int head_dim) {
  return static_cast<std::size_t>(kScoreFloats + kTileQueries * padded_to_lanes(head_dim));
}
std::size_t thread_floats(int head_dim) {
  return split_floats(head_dim) + 2 * state_floats(kTileQueries, head_dim);
}
SplitScratch split_scratch(float* memory) {
  return {.scores = memory, .queries = memory + kScoreFloats};
}

void require(bool holds, const char* what, int found, const char* expected) {
  if (holds) return;
  throw FieldInvalid(std::string("attention ") + what, std::to_string(found) + ", expected " + expected);
}

void require_heads(const AttentionParams& params) {
  require(params.n_kv_heads > 0 && params.n_heads % params.n_kv_heads == 0, "n_heads", params.n_heads,
          "a multiple of n_kv_heads");
  require(params.head_dim > 0 && params.head_dim % 8 == 0, "head_dim", params.head_dim, "a multiple of 8");
}

}  // namespace

SplitPanels panels_of(const CpuKvPool& pool, int layer, const SequenceRows& sequence, int kv_head, int split) {
  SplitPanels panels = {};
  panels.k_head_bytes = static_cast<std::ptrdiff_t>(pool.k_head_bytes(layer));
  panels.v_head_bytes = static_cast<std::ptrdiff_t>(pool.v_head_bytes(layer));
  panels.first_position = split * kSplitTokens;
  const int block_tokens = pool.geometry().block_tokens;
  for (int panel = 0; panel < kSplitPanels; ++panel) {
    const int position = panels.first_position + panel * kPanelTokens;
    const auto index = static_cast<std::size_t>(position / block_tokens);
    if (index >= sequence.blocks.size()) break;
    const int within = position % block_tokens / kPanelTokens;
    panels.k[panel] = pool.k_panel(layer, sequence.blocks[index], kv_head, within);
    panels.v[panel] = pool.v_panel(layer, sequence.blocks[index], kv_head, within);
  }
  return panels;
}

std::size_t Attention::scratch_bytes(int max_context, const AttentionParams& largest) const {
  require_heads(largest);
  const int n_threads = threads_.n_threads();
  return sizeof(float) * (thread_floats(largest.head_dim) * static_cast<std::size_t>(n_threads) +
                          states_floats(max_context, largest.head_dim, n_threads));
}

void Attention::reserve(int max_rows, int max_context, const AttentionParams& largest) {
  require_heads(largest);
  reserved_.rows = std::max(reserved_.rows, max_rows);
  reserved_.context = std::max(reserved_.context, max_context);
  reserved_.kv_heads = std::max(reserved_.kv_heads, largest.n_kv_heads);
  reserved_.heads = std::max(reserved_.heads, largest.n_heads);
  reserved_.head_dim = std::max(reserved_.head_dim, largest.head_dim);

  const auto n_threads = static_cast<std::size_t>(threads_.n_threads());
  thread_floats_ = thread_floats(reserved_.head_dim);
  state_floats_ = states_floats(reserved_.context, reserved_.head_dim, threads_.n_threads());
  const std::size_t n_bytes = sizeof(float) * (thread_floats_ * n_threads + state_floats_);
  if (n_bytes > scratch_bytes_) scratch_ = Arena(n_bytes).allocate(n_bytes);
  scratch_bytes_ = n_bytes;
  // At most, for any number of kv heads up to that of the largest layer.
  const auto tiles_per_row = static_cast<std::size_t>(reserved_.heads / kTileQueries + reserved_.kv_heads);
  const auto most_tiles = static_cast<std::size_t>(reserved_.rows) * tiles_per_row;
  const auto most_splits = kTasksPerThread * n_threads * static_cast<std::size_t>(splits_of(reserved_.context));
  tiles_.reserve(most_tiles);
  split_tiles_.reserve(most_tiles);
  tasks_.reserve(most_tiles + most_splits);
}

float* Attention::thread_scratch(int thread) const {
  return reinterpret_cast<float*>(scratch_.get()) + static_cast<std::size_t>(thread) * thread_floats_;
}

AttentionState Attention::split_state(const Tile& tile, int split) const {
  const std::size_t stride = state_floats(tile.queries.n_queries(), tile.queries.head_dim);
  float* states = thread_scratch(threads_.n_threads()) + tile.states;
  return state_at(states + static_cast<std::size_t>(split - tile.first_split) * stride, tile.queries);
}

// A few rows process several kv heads at once, since these are contiguous in memory. But a short cache has too few
// splits to keep the threads busy; then each kv head is a tile.
int Attention::kv_heads_per_tile(const SequenceRows& sequence, const AttentionParams& params,
                                 std::int64_t total_splits) const {
  const int queries = sequence.n_rows * group_size(params);
  if (2 * queries > kTileQueries) return 1;
  const std::int64_t tasks_wanted = threads_.n_threads() == 1 ? 1 : kTasksPerThread * threads_.n_threads();
  const std::int64_t tiles_wanted = ceil_div(tasks_wanted, total_splits);
  const int fair = static_cast<int>(std::max<std::int64_t>(1, params.n_kv_heads / tiles_wanted));
  return std::min(fair, kTileQueries / queries);
}

void Attention::add_tiles(const Call& call, const SequenceRows& sequence, int kv_heads) {
  const AttentionParams& params = call.params;
  const int group = group_size(params);
  const int heads = std::min(group, kTileQueries);
  const int rows = std::max(1, kTileQueries / (group * kv_heads));
  // All rows of one kv head are consecutive, so that its keys stay in a CPU cache. The last rows see the most keys and
  // go first, so that no thread is left with a long task at the end.
  for (int kv_head = 0; kv_head < params.n_kv_heads; kv_head += kv_heads) {
    for (int head = 0; head < group; head += heads) {
      for (int row = (sequence.n_rows - 1) / rows * rows; row >= 0; row -= rows) {
        const int n_rows = std::min(rows, sequence.n_rows - row);
        const int first_position = sequence.first_position + row;
        const int first_head = kv_head * group + head;
        const AttentionTile queries = {
            .q = call.q.data + (sequence.first_row + row) * call.q.stride + first_head * params.head_dim,
            .row_stride = call.q.stride,
            .n_rows = n_rows,
            .n_kv_heads = std::min(kv_heads, params.n_kv_heads - kv_head),
            .n_heads = std::min(heads, group - head),
            .first_position = first_position,
            .head_dim = params.head_dim,
            .scale = params.scale,
            .soft_cap = params.soft_cap,
            .window = params.window,
            .sinks = params.sinks != nullptr ? params.sinks->data() + first_head : nullptr,
            .ends = sees_ahead(params, sequence) ? sequence.ends.data() + row : nullptr,
            .ahead = params.ahead,
            .starts = sequence.starts.empty() ? nullptr : sequence.starts.data() + row};
        tiles_.push_back({.sequence = &sequence,
                          .queries = queries,
                          .first_row = sequence.first_row + row,
                          .first_kv_head = kv_head,
                          .first_head = first_head,
                          .first_split = first_key(queries, 0) / kSplitTokens,
                          .end_split = splits_of(end_of_keys(queries)),
                          .states = -1});
      }
    }
  }
}

void Attention::plan_tiles(const Call& call, std::span<const SequenceRows> sequences) {
  std::int64_t total_splits = 0;
  for (const SequenceRows& sequence : sequences) total_splits += splits_of(most_keys(call.params, sequence));
  for (const SequenceRows& sequence : sequences) {
    if (sequence.n_rows == 0) continue;
    add_tiles(call, sequence, kv_heads_per_tile(sequence, call.params, total_splits));
  }
}

// Divides tiles that would take more than a small share of a thread's time (split-K, as in Flash-Decoding).
void Attention::plan_tasks() {
  // Reading a split costs about as much as eight queries on it.
  const auto cost = [](const Tile& tile) {
    const int queries = std::max(8 * tile.queries.n_kv_heads, tile.queries.n_queries());
    return static_cast<std::int64_t>(tile.end_split - tile.first_split) * queries;
  };
  std::int64_t total = 0;
  for (const Tile& tile : tiles_) total += cost(tile);
  const int n_threads = threads_.n_threads();
  std::size_t used = 0;
  for (int i = 0; i < static_cast<int>(tiles_.size()); ++i) {
    Tile& tile = tiles_[static_cast<std::size_t>(i)];
    const int n_splits = tile.end_split - tile.first_split;
    const std::size_t needed =
        state_floats(tile.queries.n_queries(), tile.queries.head_dim) * static_cast<std::size_t>(n_splits);
    const bool divides = n_threads > 1 && n_splits > 1 && cost(tile) * kTasksPerThread * n_threads > total &&
                         used + needed <= state_floats_;
    if (!divides) {
      tasks_.push_back({i, -1});
      continue;
    }
    tile.states = static_cast<std::ptrdiff_t>(used);
    used += needed;
    split_tiles_.push_back(i);
    for (int split = tile.first_split; split < tile.end_split; ++split) tasks_.push_back({i, split});
  }
}

void Attention::run_tile(const Call& call, const Tile& tile, float* scratch) const {
  float* states = scratch + split_floats(call.params.head_dim);
  const AttentionState split_state = state_at(states, tile.queries);
  const AttentionState whole =
      state_at(states + state_floats(tile.queries.n_queries(), tile.queries.head_dim), tile.queries);
  const SplitScratch of_thread = split_scratch(scratch);
  call.keys.pack_queries(tile.queries, of_thread.queries);
  for (int split = tile.first_split; split < tile.end_split; ++split) {
    const SplitPanels panels = panels_of(call.pool, call.layer, *tile.sequence, tile.first_kv_head, split);
    attend_split(call.keys, call.values, tile.queries, panels, of_thread, split_state);
    ops_.merge(tile.queries, panels.first_position, split_state, whole);
  }
  finish_tile(call, tile, whole);
}

void Attention::run_split(const Call& call, const Tile& tile, int split, float* scratch) const {
  const SplitPanels panels = panels_of(call.pool, call.layer, *tile.sequence, tile.first_kv_head, split);
  const SplitScratch of_thread = split_scratch(scratch);
  call.keys.pack_queries(tile.queries, of_thread.queries);
  attend_split(call.keys, call.values, tile.queries, panels, of_thread, split_state(tile, split));
}

void Attention::merge_tile(const Call& call, const Tile& tile, float* scratch) const {
  const AttentionState whole = state_at(scratch, tile.queries);
  for (int split = tile.first_split; split < tile.end_split; ++split) {
    ops_.merge(tile.queries, split * kSplitTokens, split_state(tile, split), whole);
  }
  finish_tile(call, tile, whole);
}

void Attention::finish_tile(const Call& call, const Tile& tile, const AttentionState& whole) const {
  float* out = call.out.data + tile.first_row * call.out.stride + tile.first_head * call.params.head_dim;
  ops_.finish(tile.queries, whole, out, call.out.stride);
  if (!call.rotates_back) return;
  const int n_heads = tile.queries.n_kv_heads * tile.queries.n_heads;
  for (int row = 0; row < tile.queries.n_rows; ++row) {
    for (int head = 0; head < n_heads; ++head) {
      ops_.rotate_back(out + row * call.out.stride + head * call.params.head_dim, call.params.head_dim);
    }
  }
}

void Attention::run(const CpuKvPool& pool, int layer, std::span<const SequenceRows> sequences,
                    const AttentionParams& params, Rows q, Rows out) {
  tiles_.clear();
  tasks_.clear();
  split_tiles_.clear();
  const KvTypes types = pool.geometry().layer(layer).types;
  const Call call = {.pool = pool,
                     .layer = layer,
                     .params = params,
                     .q = q,
                     .out = out,
                     .keys = ops_.keys_of(types.k),
                     .values = ops_.values_of(types.v),
                     .rotates_back = traits(types.v).is_rotated};
  plan_tiles(call, sequences);
  plan_tasks();
  threads_.run(static_cast<int>(tasks_.size()), [&](int i, int thread) {
    const Task task = tasks_[static_cast<std::size_t>(i)];
    const Tile& tile = tiles_[static_cast<std::size_t>(task.tile)];
    if (task.split < 0) {
      run_tile(call, tile, thread_scratch(thread));
    } else {
      run_split(call, tile, task.split, thread_scratch(thread));
    }
  });
  threads_.run(static_cast<int>(split_tiles_.size()), [&](int i, int thread) {
    merge_tile(call, tiles_[static_cast<std::size_t>(split_tiles_[static_cast<std::size_t>(i)])],
               thread_scratch(thread));
  });
}

}  // namespace imp::cpu
