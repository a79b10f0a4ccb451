// Decode attention (sequences with one row): device code. Split-K as in Flash-Decoding, with the online softmax of
// FlashAttention-2, for grouped-query heads and a paged cache.
//
// It differs in its persistent blocks: a block processes item after item and fetches the next item's first keys before
// this one ends. The device derives the items from the lengths, so a captured graph serves any lengths.
#pragma once

#include "backend/cuda/attention/decode_pipeline.cuh"

namespace imp::cuda {

// Shared memory that a block's warps exchange.
struct DecodeSharedMemory {
  arch::Vec16* weights;  // of a group of tiles: [tile][step][lane]
  float* greatest;       // [tile][row] of the group, double-buffered: a warp may be a group ahead
  arch::Vec16* query;    // of the item: [step][lane]
};

template <class Kv, int kDim>
struct DecodeWarp {
  using Shape = Decode<Kv, kDim>;

  AttentionState<Shape::kColumns> state;   // of this split
  AttentionState<Shape::kColumns> before;  // of earlier splits
  bool has_before;

  // Each warp prepares a part of the query for all.
  __device__ __forceinline__ void begin(const AttentionArgs& args, const DecodeItem& item,
                                        const DecodeSharedMemory& exchange) {
    const float* q[2];
    IMP_UNROLL
    for (int which = 0; which < 2; ++which) {
      const int head = row_of_lane(which);
      q[which] = head < item.n_heads ? args.q.data + offset_of_head(args, item, head, args.q) : nullptr;
    }
    IMP_ROLLED
    for (int step = warp_of_thread(); step < kDim / 16; step += kAttentionWarps) {
      std::uint32_t a[4];
      load_query<Kv>(q, args.cache.head_dim, args.q_factor, step, a);
      exchange.query[step * kWarpSize + lane_of_thread()] = {{a[0], a[1], a[2], a[3]}};
    }
    state.clear();
    before.clear();
    has_before = false;
  }

  __device__ __forceinline__ static std::int64_t offset_of_head(const AttentionArgs& args, const DecodeItem& item,
                                                                int head, const Rows& rows) {
    return args.sequences.first_rows[item.sequence] * rows.stride +
           static_cast<std::int64_t>(item.kv_head * args.group + item.first_head + head) * args.cache.head_dim;
  }

  // Computes the scores of the warp's own tile and publishes their maximum.
  __device__ __forceinline__ void score(const DecodeGroup& now, float soft_cap, KvPipeline<Kv, kDim>& pipeline,
                                        const DecodeSharedMemory& exchange, float (&scores)[kScoreColumns][4]) {
    const auto load_fragment = [&](int step, std::uint32_t (&a)[4]) {
      const arch::Vec16 words = exchange.query[step * kWarpSize + lane_of_thread()];
      IMP_UNROLL
      for (int i = 0; i < 4; ++i) a[i] = words.word[i];
    };
    const int own = warp_of_thread();
    const bool has_own = now.has_tile(own);
    IMP_UNROLL
    for (int run = 0; run < kTileSteps; ++run) {
      const std::byte* const taken = pipeline.take_keys(now, run);
      IMP_UNROLL
      for (int i = 0; i < 4; ++i) scores[2 * run][i] = scores[2 * run + 1][i] = 0;
      if (!has_own) continue;
      add_scores<Kv, kDim>(load_fragment, pipeline.keys(now, run, taken), scores[2 * run], scores[2 * run + 1]);
    }
    float greatest[2] = {-INFINITY, -INFINITY};
    if (has_own) {
      const KeyRange& seen = now.item.seen;
      const int position = now.tile(own) * kTileKeys;
      const bool sees_all = position >= seen.first && position + kTileKeys <= seen.end;
      finish_scores(scores, soft_cap, position, {seen, seen}, sees_all);
      greatest_of_rows(scores, greatest);
    }
    if (lane_of_thread() % 4 != 0) return;
    IMP_UNROLL
    for (int row = 0; row < 2; ++row) exchange.greatest[own * kTileRows + row_of_lane(row)] = greatest[row];
  }

  // Publishes the weights of the warp's own tile, relative to the greatest score of the split so far.
  __device__ __forceinline__ void publish_weights(const float (&scores)[kScoreColumns][4],
                                                  const DecodeSharedMemory& exchange) const {
    const int own = warp_of_thread();
    float greatest[2] = {state.greatest[0], state.greatest[1]};
    for (int tile = 0; tile <= own; ++tile) {
      IMP_UNROLL
      for (int row = 0; row < 2; ++row) {
        greatest[row] = fmaxf(greatest[row], exchange.greatest[tile * kTileRows + row_of_lane(row)]);
      }
    }
    std::uint32_t weights[kTileSteps][4];
    weigh<Kv>(scores, greatest, weights);
    IMP_UNROLL
    for (int step = 0; step < kTileSteps; ++step) {
      exchange.weights[(own * kTileSteps + step) * kWarpSize + lane_of_thread()] = {
          {weights[step][0], weights[step][1], weights[step][2], weights[step][3]}};
    }
  }

  // Adds the warp's columns of the values of all tiles.
  __device__ __forceinline__ void add_group(const DecodeGroup& now, const DecodeGroup& next,
                                            KvPipeline<Kv, kDim>& pipeline, const DecodeSharedMemory& exchange) {
    IMP_ROLLED
    for (int within = 0; within < kGroupTiles; ++within) {
      const std::byte* const taken = pipeline.take_values(now, next, within);
      if (!now.has_tile(within)) continue;
      float greatest[2];
      IMP_UNROLL
      for (int row = 0; row < 2; ++row) greatest[row] = exchange.greatest[within * kTileRows + row_of_lane(row)];
      state.rescale(greatest);
      std::uint32_t weights[kTileSteps][4];
      IMP_UNROLL
      for (int step = 0; step < kTileSteps; ++step) {
        const arch::Vec16 words = exchange.weights[(within * kTileSteps + step) * kWarpSize + lane_of_thread()];
        IMP_UNROLL
        for (int word = 0; word < 4; ++word) weights[step][word] = words.word[word];
      }
      add_values<Kv, Shape::kColumns>(weights, pipeline.values(now, within, taken), 0, state);
    }
  }

  __device__ __forceinline__ void end_split(bool is_last) {
    if (has_before) {
      MergeFactors factors[2];
      IMP_UNROLL
      for (int row = 0; row < 2; ++row) {
        factors[row] = merge_factors(before.greatest[row], state.greatest[row]);
        state.greatest[row] = factors[row].greatest;
        state.sums[2 * row] = merged(factors[row], before.sums[2 * row], state.sums[2 * row]);
      }
      IMP_UNROLL
      for (int j = 0; j < Shape::kColumns / 8; ++j) {
        IMP_UNROLL
        for (int i = 0; i < 4; ++i) {
          state.values[j][i] = merged(factors[i / 2], before.values[j][i], state.values[j][i]);
        }
      }
    }
    if (is_last) return;
    before = state;
    has_before = true;
    state.clear();
  }

  // Writes the result, or the state if the split is one of several.
  __device__ __forceinline__ void write(const AttentionArgs& args, const DecodeItem& item) const {
    const int first_column = warp_of_thread() * Shape::kColumns;
    IMP_UNROLL
    for (int which = 0; which < 2; ++which) {
      const int row = row_of_lane(which);
      if (row >= item.n_heads) continue;
      const std::int64_t head =
          static_cast<std::int64_t>(item.state) * args.n_heads + item.kv_head * args.group + item.first_head + row;
      float* const to = item.is_whole() ? args.out.data + offset_of_head(args, item, row, args.out)
                                        : args.split_values + head * args.cache.head_dim;
      const float divisor = item.is_whole() ? state.sums[2 * which] : 1.0F;
      if (!item.is_whole() && warp_of_thread() == 0 && lane_of_thread() % 4 == 0) {
        args.split_sums[2 * head] = state.greatest[which];
        args.split_sums[2 * head + 1] = state.sums[2 * which];
      }
      IMP_UNROLL
      for (int j = 0; j < Shape::kColumns / 8; ++j) {
        if (first_column + 8 * j >= args.cache.head_dim) break;
        IMP_UNROLL
        for (int i = 0; i < 2; ++i) {
          to[first_column + 8 * j + column_of_lane() + i] = state.values[j][2 * which + i] / divisor;
        }
      }
    }
  }
};

template <class Kv, int kDim>
__global__ void __launch_bounds__(kAttentionThreads) decode_kernel(AttentionArgs args) {
  using Shape = Decode<Kv, kDim>;
  IMP_DYNAMIC_SHARED(std::byte, shared);
  SplitScheduler search;
  DecodeGroup now = first_group_of(args, search, static_cast<int>(blockIdx.x));
  KvPipeline<Kv, kDim> pipeline(args, shared + warp_of_thread() * Shape::kWarpBytes);
  pipeline.begin(now);
  DecodeWarp<Kv, kDim> mine;
  bool is_odd = false;
  while (now.exists()) {
    const DecodeGroup next = group_after(args, search, now);
    const DecodeSharedMemory exchange = {
        reinterpret_cast<arch::Vec16*>(shared + Shape::kWeightsAt),
        reinterpret_cast<float*>(shared + Shape::kGreatestAt) + (is_odd ? kGroupTiles * kTileRows : 0),
        reinterpret_cast<arch::Vec16*>(shared + Shape::kQueryAt)};
    is_odd = !is_odd;
    if (now.is_first()) {
      mine.begin(args, now.item, exchange);
      __syncthreads();
    }
    float scores[kScoreColumns][4];
    mine.score(now, args.soft_cap, pipeline, exchange, scores);
    __syncthreads();
    if (now.has_tile(warp_of_thread())) mine.publish_weights(scores, exchange);
    __syncthreads();
    mine.add_group(now, next, pipeline, exchange);
    mine.end_split(now.is_last());
    if (now.is_last()) mine.write(args, now.item);
    now = next;
  }
}

}  // namespace imp::cuda
