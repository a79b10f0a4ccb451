// Prefill attention (sequences with several rows): device code. FlashAttention-2 ("FlashAttention-2: Faster Attention
// with Better Parallelism and Work Partitioning") on a paged cache. It differs in the merge: splits of 256 keys keep
// states of their own and are merged in order, as in decode, so that chunked prefill changes no bit.
//
// The query heads of one kv head (grouped-query attention) see the same keys: (row, head) pairs in that order are the
// rows of tiles. A block has 64 of them, 16 per warp, and loops over all tiles of keys that any of them sees. For large
// heads it has 32, and two warps share rows, each with half of V's columns. A block fetches the next tile's K while it
// adds values, and this tile's V while it computes scores.
#pragma once

#include "backend/cuda/attention/copies.cuh"
#include "backend/cuda/attention/non_finite.cuh"
#include "backend/cuda/attention/units.cuh"

namespace imp::cuda {

template <class Kv, int kDim>
struct Prefill {
  static constexpr int kParts = kDim <= 128 ? 1 : 2;  // warps that share rows
  static constexpr int kColumns = kDim / kParts;      // columns of V per warp
  static constexpr int kBlockRows = kAttentionWarps / kParts * kTileRows;
  static constexpr bool kKeepsQuery = kDim <= 64;  // in registers, else in shared memory

  // Offsets in shared memory.
  static constexpr int kTileBytes = kTileKeys * kDim * 2;
  static constexpr int kQuantizedBytes = Kv::kQuantized ? QuantizedRows<kTileKeys, kDim, kDim>::kBytes : 0;
  static constexpr int kValuesAt = kTileBytes;
  static constexpr int kQuantizedKeysAt = 2 * kTileBytes;
  static constexpr int kQuantizedValuesAt = kQuantizedKeysAt + kQuantizedBytes;
  static constexpr int kStatesAt = kQuantizedValuesAt + kQuantizedBytes;
  static constexpr int kQueriesAt = kStatesAt + kBlockRows * kDim * 4;
  static constexpr int kNonFiniteAt = kQueriesAt + (kKeepsQuery ? 0 : kBlockRows * kDim * 2);
  static constexpr int kFoundAt = kNonFiniteAt + kDim * 8;
  static constexpr int kSharedBytes = kFoundAt + 16;
};

// The rows of a block, as (row, head) pairs counted from the sequence's first.
struct PrefillRows {
  int sequence;
  int first_pair, end_pair;
  const std::int32_t* blocks;
  KeyRange seen;  // by any of them
  KeyRange seen_by_all;

  __device__ __forceinline__ bool all_see(int tile) const {
    return tile * kTileKeys >= seen_by_all.first && (tile + 1) * kTileKeys <= seen_by_all.end;
  }
};

__device__ __forceinline__ KeyRange keys_of_pair(const AttentionArgs& args, int sequence, int pair) {
  return visible_keys(args.sequences.first_positions[sequence] + pair / args.group, args.window);
}

__device__ __forceinline__ PrefillRows find_rows(const AttentionArgs& args, int number, int block_rows) {
  const SequencesOnDevice& all = args.sequences;
  const auto n_tiles = [&](int i) {
    const int n_rows = all.row_counts[i];
    return n_rows > 1 ? ceil_div(n_rows * args.group, block_rows) : 0;
  };
  const UnitOfSequence unit = find_unit(number, all.n_sequences, n_tiles);
  const int n_pairs = all.row_counts[unit.sequence] * args.group;
  // The last rows see the most keys and go first.
  const int first = (n_tiles(unit.sequence) - 1 - unit.within) * block_rows;
  const int end = first + block_rows < n_pairs ? first + block_rows : n_pairs;
  const KeyRange of_first = keys_of_pair(args, unit.sequence, first);
  const KeyRange of_last = keys_of_pair(args, unit.sequence, end - 1);
  return {.sequence = unit.sequence,
          .first_pair = first,
          .end_pair = end,
          .blocks = all.blocks + all.first_blocks[unit.sequence],
          .seen = {of_first.first, of_last.end},
          .seen_by_all = {of_last.first, of_first.end}};
}

// A warp's 16 rows during the loop over tiles.
template <class Kv, int kDim>
struct PrefillWarp {
  using Shape = Prefill<Kv, kDim>;
  static constexpr int kQuerySteps = Shape::kKeepsQuery ? kDim / 16 : 1;

  std::uint32_t query[kQuerySteps][4];
  AttentionState<Shape::kColumns> state;
  float greatest_before[2];
  float sums_before[2];
  bool has_state_before;  // a state of earlier splits exists; its values are in shared memory
  KeyRange seen[2];       // by the lane's rows
  KeyRange seen_by_any, seen_by_all;

  __device__ __forceinline__ static int first_pair_of_warp(const PrefillRows& rows) {
    return rows.first_pair + warp_of_thread() / Shape::kParts * kTileRows;
  }
  __device__ __forceinline__ static int first_column() { return warp_of_thread() % Shape::kParts * Shape::kColumns; }

  // `kept`: the queries of the warps that share rows, by step and lane. One of them writes it for all.
  __device__ __forceinline__ void begin(const AttentionArgs& args, const PrefillRows& rows, int kv_head,
                                        arch::Vec16* kept) {
    const int first = first_pair_of_warp(rows);
    const int end = first + kTileRows < rows.end_pair ? first + kTileRows : rows.end_pair;
    has_state_before = false;
    state.clear();
    seen_by_any = seen_by_all = {};
    if (first >= end) return;
    const KeyRange of_first = keys_of_pair(args, rows.sequence, first);
    const KeyRange of_last = keys_of_pair(args, rows.sequence, end - 1);
    seen_by_any = {of_first.first, of_last.end};
    seen_by_all = {of_last.first, of_first.end};
    const float* q[2];
    IMP_UNROLL
    for (int which = 0; which < 2; ++which) {
      const int pair = first + row_of_lane(which);
      seen[which] = pair < end ? keys_of_pair(args, rows.sequence, pair) : KeyRange{};
      q[which] = pair < end ? args.q.data + place_of_pair(args, rows.sequence, pair, kv_head, args.q) : nullptr;
    }
    IMP_UNROLL
    for (int step = 0; step < kDim / 16; ++step) {
      std::uint32_t a[4];
      load_query<Kv>(q, args.cache.head_dim, args.q_factor, step, a);
      if constexpr (Shape::kKeepsQuery) {
        IMP_UNROLL
        for (int i = 0; i < 4; ++i) query[step][i] = a[i];
      } else if (first_column() == 0) {
        kept[step * kWarpSize + lane_of_thread()] = {{a[0], a[1], a[2], a[3]}};
      }
    }
  }

  // Offset of the pair's head in rows of q or out.
  __device__ __forceinline__ static std::int64_t place_of_pair(const AttentionArgs& args, int sequence, int pair,
                                                               int kv_head, const Rows& rows) {
    const std::int64_t row = args.sequences.first_rows[sequence] + pair / args.group;
    const int head = kv_head * args.group + pair % args.group;
    return row * rows.stride + head * args.cache.head_dim;
  }

  __device__ __forceinline__ bool sees(int tile) const {
    return tile * kTileKeys < seen_by_any.end && (tile + 1) * kTileKeys > seen_by_any.first;
  }
  __device__ __forceinline__ bool sees_all_of(int tile) const {
    return tile * kTileKeys >= seen_by_all.first && (tile + 1) * kTileKeys <= seen_by_all.end;
  }
  __device__ __forceinline__ bool is_last(int tile) const { return (tile + 1) * kTileKeys >= seen_by_any.end; }

  __device__ __forceinline__ void score(int tile, float soft_cap, const std::uint16_t* keys, const arch::Vec16* kept,
                                        float (&scores)[kScoreColumns][4]) {
    const auto load_fragment = [&](int step, std::uint32_t (&a)[4]) {
      if constexpr (Shape::kKeepsQuery) {
        IMP_UNROLL
        for (int i = 0; i < 4; ++i) a[i] = query[step][i];
      } else {
        const arch::Vec16 words = kept[step * kWarpSize + lane_of_thread()];
        IMP_UNROLL
        for (int i = 0; i < 4; ++i) a[i] = words.word[i];
      }
    };
    IMP_UNROLL
    for (int run = 0; run < kTileSteps; ++run) {
      IMP_UNROLL
      for (int i = 0; i < 4; ++i) scores[2 * run][i] = scores[2 * run + 1][i] = 0;
      add_scores<Kv, kDim>(load_fragment, keys + run * kStepKeys * kDim, scores[2 * run], scores[2 * run + 1]);
    }
    finish_scores(scores, soft_cap, tile * kTileKeys, seen, sees_all_of(tile));
  }

  // Ends a split: merges its state with those before it. `states` holds the warp's values, by lanes.
  __device__ __forceinline__ void end_split(bool is_last, float* states) {
    MergeFactors merge[2] = {};
    if (has_state_before) {
      IMP_UNROLL
      for (int row = 0; row < 2; ++row) {
        merge[row] = merge_factors(greatest_before[row], state.greatest[row]);
        state.greatest[row] = merge[row].greatest;
        state.sums[2 * row] = merged(merge[row], sums_before[row], state.sums[2 * row]);
      }
    }
    IMP_UNROLL
    for (int j = 0; j < Shape::kColumns / 8; ++j) {
      IMP_UNROLL
      for (int i = 0; i < 4; ++i) {
        float* const before = states + (j * 4 + i) * kWarpSize + lane_of_thread();
        if (has_state_before) state.values[j][i] = merged(merge[i / 2], *before, state.values[j][i]);
        if (!is_last) *before = state.values[j][i];
      }
    }
    if (is_last) return;
    IMP_UNROLL
    for (int row = 0; row < 2; ++row) {
      greatest_before[row] = state.greatest[row];
      sums_before[row] = state.sums[2 * row];
    }
    has_state_before = true;
    state.clear();
  }

  __device__ __forceinline__ void write(const AttentionArgs& args, const PrefillRows& rows, int kv_head) const {
    IMP_UNROLL
    for (int which = 0; which < 2; ++which) {
      const int pair = first_pair_of_warp(rows) + row_of_lane(which);
      if (pair >= rows.end_pair) continue;
      float* const out = args.out.data + place_of_pair(args, rows.sequence, pair, kv_head, args.out);
      IMP_UNROLL
      for (int j = 0; j < Shape::kColumns / 8; ++j) {
        const int column = first_column() + 8 * j;
        if (column >= args.cache.head_dim) break;
        IMP_UNROLL
        for (int i = 0; i < 2; ++i) {
          out[column + column_of_lane() + i] = state.values[j][2 * which + i] / state.sums[2 * which];
        }
      }
    }
  }
};

// A thread's share of tiles of K and V, as stored in the cache.
template <class Kv, int kDim>
struct TileCopies {
  using Shape = Prefill<Kv, kDim>;
  using Share = ShareOfKeys<Kv, kTileKeys, kDim, kDim, kAttentionThreads>;

  const AttentionArgs& args;
  const PrefillRows& rows;
  int kv_head;
  std::byte* shared;
  Share share;

  // By lane: the cache blocks of a tile's runs of 16 keys.
  __device__ __forceinline__ int blocks_of(int tile) const {
    return block_of_lane(args.cache, rows.blocks, kTileSteps, tile * kTileKeys, rows.seen);
  }

  __device__ __forceinline__ void begin(int which, int tile, int blocks) const {
    std::byte* const to = shared + (which == 0 ? (Kv::kQuantized ? Shape::kQuantizedKeysAt : 0)
                                               : (Kv::kQuantized ? Shape::kQuantizedValuesAt : Shape::kValuesAt));
    IMP_ROLLED
    for (int run = 0; run < kTileSteps; ++run) {
      const int block = __shfl_sync(kAllLanes, blocks, run);
      const RunOfKeys keys =
          run_of_keys(args.cache, block, kv_head, which, tile * kTileKeys + run * kStepKeys, rows.seen);
      share.begin(args.cache, keys, static_cast<int>(threadIdx.x), run, to);
    }
    arch::end_copy_group();
  }
};

// Waits for the copies of all threads.
template <class Kv, int kDim>
__device__ __forceinline__ void finish_tile(const AttentionArgs& args, const PrefillRows& rows, int which, int tile,
                                            std::byte* shared) {
  using Shape = Prefill<Kv, kDim>;
  __syncthreads();
  if constexpr (Kv::kQuantized) {
    dequantize_rows<kTileKeys, kDim, kDim, kAttentionThreads>(
        args.cache, shared + (which == 0 ? Shape::kQuantizedKeysAt : Shape::kQuantizedValuesAt), 0,
        static_cast<int>(threadIdx.x), tile * kTileKeys, rows.seen,
        reinterpret_cast<std::uint16_t*>(shared + (which == 0 ? 0 : Shape::kValuesAt)));
    __syncthreads();
  }
}

// Grid: (row tiles of all sequences with several rows, kv heads).
template <class Kv, int kDim>
__global__ void __launch_bounds__(kAttentionThreads) prefill_kernel(AttentionArgs args) {
  using Shape = Prefill<Kv, kDim>;
  IMP_DYNAMIC_SHARED(std::byte, shared);
  auto* const keys = reinterpret_cast<const std::uint16_t*>(shared);
  auto* const values = reinterpret_cast<std::uint16_t*>(shared + Shape::kValuesAt);
  const NonFiniteValues non_finite = {reinterpret_cast<int*>(shared + Shape::kFoundAt),
                                      reinterpret_cast<std::uint64_t*>(shared + Shape::kNonFiniteAt)};
  const int warp = warp_of_thread();
  float* const states = reinterpret_cast<float*>(shared + Shape::kStatesAt) + warp * kTileRows * Shape::kColumns;
  auto* const kept =
      reinterpret_cast<arch::Vec16*>(shared + Shape::kQueriesAt) + warp / Shape::kParts * (kDim / 16) * kWarpSize;
  const int kv_head = static_cast<int>(blockIdx.y);
  const PrefillRows rows = find_rows(args, static_cast<int>(blockIdx.x), Shape::kBlockRows);
  const int first_tile = rows.seen.first / kTileKeys;
  const int end_tile = ceil_div(rows.seen.end, kTileKeys);

  if (threadIdx.x == 0) *non_finite.found = 0;
  const TileCopies<Kv, kDim> copies = {
      args, rows, kv_head, shared,
      TileCopies<Kv, kDim>::Share::make(static_cast<int>(threadIdx.x), 0, args.cache.head_dim)};
  int blocks = copies.blocks_of(first_tile);
  copies.begin(0, first_tile, blocks);
  PrefillWarp<Kv, kDim> mine;
  mine.begin(args, rows, kv_head, kept);
  for (int tile = first_tile; tile < end_tile; ++tile) {
    arch::wait_for_copies<0>();
    finish_tile<Kv, kDim>(args, rows, 0, tile, shared);
    copies.begin(1, tile, blocks);
    blocks = copies.blocks_of(tile + 1);
    const bool sees = mine.sees(tile);
    std::uint32_t weights[kTileSteps][4];
    float scores[kScoreColumns][4];
    if (sees) mine.score(tile, args.soft_cap, keys, kept, scores);
    __syncthreads();  // all warps are done with these keys
    const bool has_next = tile + 1 < end_tile;
    if (has_next) copies.begin(0, tile + 1, blocks);
    if (sees) {
      float greatest[2];
      greatest_of_rows(scores, greatest);
      mine.state.rescale(greatest);
      weigh<Kv>(scores, mine.state.greatest, weights);
    }
    if (has_next) {
      arch::wait_for_copies<1>();
    } else {
      arch::wait_for_copies<0>();
    }
    finish_tile<Kv, kDim>(args, rows, 1, tile, shared);
    const bool all_see = rows.all_see(tile);
    if (!all_see) zero_non_finite<Kv, kDim>(values, non_finite);
    if (!sees) continue;
    add_values<Kv, kDim>(weights, values, mine.first_column(), mine.state);
    if (!all_see && *non_finite.found != 0) {
      add_non_finite(non_finite, mine.first_column(), tile * kTileKeys, mine.seen, mine.state);
    }
    const bool is_last = mine.is_last(tile);
    if (is_last || (tile + 1) % (kSplitTokens / kTileKeys) == 0) mine.end_split(is_last, states);
  }
  mine.write(args, rows, kv_head);
}

}  // namespace imp::cuda
