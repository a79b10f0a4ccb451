// Divides attention among the threads: tiles of queries, and splits of keys for long caches (split-K, as in
// Flash-Decoding).
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backend/attention.h"
#include "backend/cpu/attention/split_attention.h"
#include "backend/cpu/kv/cpu_kv_pool.h"
#include "backend/cpu/ops/cpu_ops.h"
#include "backend/rows.h"
#include "base/thread_pool.h"

namespace imp::cpu {

// The panels of a split, from a sequence's kv head on.
SplitPanels panels_of(const CpuKvPool& pool, int layer, const SequenceRows& sequence, int kv_head, int split);

// The division changes no bit: every split is computed by itself, and splits are merged in ascending order.
class Attention {
 public:
  Attention(const CpuOps& ops, ThreadPool& threads) : ops_(ops), threads_(threads) {}

  // For batches of up to max_rows rows in layers up to `largest`. May be called again; never shrinks. Throws
  // InvalidArgument for unsupported heads.
  void reserve(int max_rows, int max_context, const AttentionParams& largest);
  std::size_t scratch_bytes(int max_context, const AttentionParams& largest) const;  // would be held
  std::size_t scratch_bytes() const noexcept { return scratch_bytes_; }

  void run(const CpuKvPool& pool, int layer, std::span<const SequenceRows> sequences, const AttentionParams& params,
           Rows q, Rows out);

 private:
  friend struct TestAccess;
  // Some rows of one sequence and their splits, for all query heads of some kv heads or some query heads of one.
  struct Tile {
    const SequenceRows* sequence;
    AttentionTile queries;
    int first_row;  // of the batch
    int first_kv_head;
    int first_head;
    int first_split;
    int end_split;
    std::ptrdiff_t states;  // offset of its splits' states, in floats; -1: one task does all splits
  };
  struct Task {
    int tile;
    int split;  // -1: all
  };
  // The arguments of one call.
  struct Call {
    const CpuKvPool& pool;
    int layer;
    const AttentionParams& params;
    Rows q;
    Rows out;
    const KeyOps& keys;
    const ValueOps& values;
    bool rotates_back;
  };

  int kv_heads_per_tile(const SequenceRows& sequence, const AttentionParams& params, std::int64_t total_splits) const;
  void add_tiles(const Call& call, const SequenceRows& sequence, int kv_heads);
  void plan_tiles(const Call& call, std::span<const SequenceRows> sequences);
  void plan_tasks();
  void run_tile(const Call& call, const Tile& tile, float* scratch) const;
  void run_split(const Call& call, const Tile& tile, int split, float* scratch) const;
  void merge_tile(const Call& call, const Tile& tile, float* scratch) const;

  void finish_tile(const Call& call, const Tile& tile, const AttentionState& whole) const;

  float* thread_scratch(int thread) const;
  AttentionState split_state(const Tile& tile, int split) const;

  // The maximum of all requests.
  struct Reserved {
    int rows = 0;
    int context = 0;
    int kv_heads = 0;
    int heads = 0;
    int head_dim = 0;
  };

  const CpuOps& ops_;
  ThreadPool& threads_;
  Reserved reserved_;
  std::vector<Tile> tiles_;
  std::vector<Task> tasks_;
  std::vector<int> split_tiles_;  // tiles with a task per split
  std::shared_ptr<std::byte> scratch_;
  std::size_t scratch_bytes_ = 0;
  std::size_t thread_floats_ = 0;  // scratch per thread
  std::size_t state_floats_ = 0;   // after it: states of these tiles
};

}  // namespace imp::cpu
