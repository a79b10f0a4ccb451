// The order of work in a decode block, and its multi-stage pipeline (cp.async) of cache reads.
//
// Four warps process a split, a group of four tiles of keys. Each warp reads eight pieces: K of its own tile, 16 keys
// at a time, then a quarter of V's columns of every tile. No two warps read the same bytes, so a warp fetches ahead,
// even into the next group, without waiting for the others.
#pragma once

#include "backend/cuda/attention/copies.cuh"
#include "backend/cuda/attention/split_schedule.cuh"

namespace imp::cuda {

constexpr int kGroupTiles = kAttentionWarps;
static_assert(kGroupTiles * kTileKeys == kSplitTokens);

template <class Kv, int kDim>
struct Decode {
  static constexpr int kStages = kDim <= 128 ? 4 : 3;      // pieces of a warp: one in use, the others in flight
  static constexpr int kColumns = kDim / kAttentionWarps;  // columns of V per warp
  using KeyCodes = QuantizedRows<kStepKeys, kDim, kDim>;
  using ValueCodes = QuantizedRows<kTileKeys, kColumns, kDim>;

  // Bytes of shared memory: each warp's pieces, its dequantized rows, and the exchange between warps.
  static constexpr int kRowsBytes = kStepKeys * kDim * 2;  // = kTileKeys · kColumns · 2
  static constexpr int kPieceBytes = !Kv::kQuantized                         ? kRowsBytes
                                     : KeyCodes::kBytes > ValueCodes::kBytes ? KeyCodes::kBytes
                                                                             : ValueCodes::kBytes;
  static constexpr int kDequantizedAt = kStages * kPieceBytes;
  static constexpr int kWarpBytes = kDequantizedAt + (Kv::kQuantized ? kRowsBytes : 0);
  static constexpr int kWeightsAt = kAttentionWarps * kWarpBytes;  // [tile][step][lane], 16 bytes each
  static constexpr int kGreatestAt = kWeightsAt + kGroupTiles * kTileSteps * kWarpSize * 16;  // [tile][row], twice
  static constexpr int kQueryAt = kGreatestAt + 2 * kGroupTiles * kTileRows * 4;  // [step][lane], 16 bytes each
  static constexpr int kSharedBytes = kQueryAt + kTileRows * kDim * 2;
};

// One kv head of a sequence, up to 16 of its query heads, and one split or all splits.
struct DecodeItem {
  int sequence = -1;  // none: there is no more work
  int kv_head = 0;
  int first_head = 0;  // counted from the kv head's first
  int n_heads = 0;
  int state = -1;  // of the split, in the pool; none: all splits
  KeyRange seen;   // in this split, or in all
  const std::int32_t* blocks = nullptr;

  __device__ __forceinline__ bool exists() const { return sequence >= 0; }
  __device__ __forceinline__ bool is_whole() const { return state < 0; }
  __device__ __forceinline__ int first_split() const { return seen.first / kSplitTokens; }
  __device__ __forceinline__ int last_split() const { return (seen.end - 1) / kSplitTokens; }
  __device__ __forceinline__ bool has_tile(int tile) const {
    return tile * kTileKeys < seen.end && (tile + 1) * kTileKeys > seen.first;
  }
};

__device__ __forceinline__ DecodeItem find_item(const AttentionArgs& args, SplitScheduler& search, int number) {
  const int tiles_of_group = ceil_div(args.group, kTileRows);
  const int heads = args.cache.n_kv_heads * tiles_of_group;
  const WorkItem work = search.find(args, number / heads);
  DecodeItem item;
  if (work.sequence < 0) return item;
  item.sequence = work.sequence;
  item.kv_head = number % heads / tiles_of_group;
  item.first_head = number % tiles_of_group * kTileRows;
  item.n_heads = args.group - item.first_head < kTileRows ? args.group - item.first_head : kTileRows;
  item.state = work.state;
  item.blocks = args.sequences.blocks + args.sequences.first_blocks[work.sequence];
  item.seen = visible_keys(args.sequences.first_positions[work.sequence], args.window);
  if (item.is_whole()) return item;
  const int begin = (item.first_split() + work.within) * kSplitTokens;
  const int end = begin + kSplitTokens;
  item.seen = {begin > item.seen.first ? begin : item.seen.first, end < item.seen.end ? end : item.seen.end};
  return item;
}

// A split of an item.
struct DecodeGroup {
  int number = 0;  // of the item
  DecodeItem item;
  int split = 0;
  int block = 0;  // by lane: the cache block of the split's keys 16 · lane … 16 · lane + 15

  __device__ __forceinline__ bool exists() const { return item.exists(); }
  __device__ __forceinline__ bool is_first() const { return split == item.first_split(); }
  __device__ __forceinline__ bool is_last() const { return split == item.last_split(); }
  __device__ __forceinline__ int tile(int within) const { return split * kGroupTiles + within; }
  __device__ __forceinline__ bool has_tile(int within) const { return item.has_tile(tile(within)); }
};

__device__ __forceinline__ DecodeGroup group_of(const AttentionArgs& args, int number, const DecodeItem& item,
                                                int split) {
  constexpr int kRuns = kSplitTokens / kStepKeys;
  return {number, item, split, block_of_lane(args.cache, item.blocks, kRuns, split * kSplitTokens, item.seen)};
}

__device__ __forceinline__ DecodeGroup first_group_of(const AttentionArgs& args, SplitScheduler& search, int number) {
  const DecodeItem item = find_item(args, search, number);
  return group_of(args, number, item, item.first_split());
}

// The block's next group, of this item or the next.
__device__ __forceinline__ DecodeGroup group_after(const AttentionArgs& args, SplitScheduler& search,
                                                   const DecodeGroup& group) {
  if (group.is_last()) return first_group_of(args, search, group.number + static_cast<int>(gridDim.x));
  return group_of(args, group.number, group.item, group.split + 1);
}

// A warp's pieces of its block's groups, fetched ahead and consumed in order. Pieces of fully masked tiles are empty
// but keep their place.
template <class Kv, int kDim>
struct KvPipeline {
  using Shape = Decode<Kv, kDim>;
  using KeyShare = ShareOfKeys<Kv, kStepKeys, kDim, kDim, kWarpSize>;
  using ValueShare = ShareOfKeys<Kv, kTileKeys, Shape::kColumns, kDim, kWarpSize>;
  static constexpr int kAhead = Shape::kStages - 1;
  static_assert(kAhead < kTileSteps && kAhead <= kGroupTiles);

  const AttentionArgs& args;
  std::byte* shared;  // of the warp
  KeyShare key_share;
  ValueShare value_share;
  int stage = 0;  // of the piece consumed next

  __device__ __forceinline__ KvPipeline(const AttentionArgs& args_of_kernel, std::byte* shared_of_warp)
      : args(args_of_kernel),
        shared(shared_of_warp),
        key_share(KeyShare::make(lane_of_thread(), 0, args.cache.head_dim)),
        value_share(ValueShare::make(lane_of_thread(), warp_of_thread() * Shape::kColumns, args.cache.head_dim)) {}

  __device__ __forceinline__ void begin(const DecodeGroup& now) {
    IMP_UNROLL
    for (int run = 0; run < kAhead; ++run) {
      begin_keys(now, run, shared + run * Shape::kPieceBytes);
      arch::end_copy_group();
    }
  }

  // Returns the next piece in shared memory. Once it has arrived, every lane is done with the piece before, whose stage
  // is then filled with the piece kAhead later.
  __device__ __forceinline__ const std::byte* take_keys(const DecodeGroup& now, int run) {
    std::byte* const later = await();
    if (run + kAhead < kTileSteps) {
      begin_keys(now, run + kAhead, later);
    } else {
      begin_values(now, run + kAhead - kTileSteps, later);
    }
    return taken();
  }
  __device__ __forceinline__ const std::byte* take_values(const DecodeGroup& now, const DecodeGroup& next, int within) {
    std::byte* const later = await();
    if (within + kAhead < kGroupTiles) {
      begin_values(now, within + kAhead, later);
    } else {
      begin_keys(next, within + kAhead - kGroupTiles, later);
    }
    return taken();
  }

  // Rows of kDim columns: the 16 keys of piece `piece` of `now`.
  __device__ __forceinline__ const std::uint16_t* keys(const DecodeGroup& now, int piece, const std::byte* taken) {
    if constexpr (!Kv::kQuantized) {
      return reinterpret_cast<const std::uint16_t*>(taken);
    } else {
      auto* const rows = reinterpret_cast<std::uint16_t*>(shared + Shape::kDequantizedAt);
      const int first = now.tile(warp_of_thread()) * kTileKeys + piece * kStepKeys;
      dequantize_rows<kStepKeys, kDim, kDim, kWarpSize>(args.cache, taken, 0, lane_of_thread(), first, now.item.seen,
                                                        rows);
      __syncwarp();
      return rows;
    }
  }
  // Rows of kColumns columns: the 64 keys of tile `within` of the group.
  __device__ __forceinline__ const std::uint16_t* values(const DecodeGroup& now, int within, const std::byte* taken) {
    if constexpr (!Kv::kQuantized) {
      return reinterpret_cast<const std::uint16_t*>(taken);
    } else {
      auto* const rows = reinterpret_cast<std::uint16_t*>(shared + Shape::kDequantizedAt);
      dequantize_rows<kTileKeys, Shape::kColumns, kDim, kWarpSize>(args.cache, taken,
                                                                   warp_of_thread() * Shape::kColumns, lane_of_thread(),
                                                                   now.tile(within) * kTileKeys, now.item.seen, rows);
      __syncwarp();
      return rows;
    }
  }

 private:
  // The stage of the piece kAhead later.
  __device__ __forceinline__ std::byte* await() {
    arch::wait_for_copies<kAhead - 1>();
    __syncwarp();
    return shared + (stage == 0 ? kAhead : stage - 1) * Shape::kPieceBytes;
  }
  __device__ __forceinline__ const std::byte* taken() {
    arch::end_copy_group();
    const std::byte* const piece = shared + stage * Shape::kPieceBytes;
    stage = stage + 1 == Shape::kStages ? 0 : stage + 1;
    return piece;
  }

  __device__ __forceinline__ RunOfKeys run_of(const DecodeGroup& group, int within, int run, int which) const {
    const int number = within * kTileSteps + run;
    return run_of_keys(args.cache, __shfl_sync(kAllLanes, group.block, number), group.item.kv_head, which,
                       group.split * kSplitTokens + number * kStepKeys, group.item.seen);
  }

  __device__ __forceinline__ void begin_keys(const DecodeGroup& group, int run, std::byte* to) const {
    if (!group.has_tile(warp_of_thread())) return;
    key_share.begin(args.cache, run_of(group, warp_of_thread(), run, 0), lane_of_thread(), 0, to);
  }

  __device__ __forceinline__ void begin_values(const DecodeGroup& group, int within, std::byte* to) const {
    if (!group.has_tile(within)) return;
    IMP_ROLLED
    for (int run = 0; run < kTileSteps; ++run) {
      value_share.begin(args.cache, run_of(group, within, run, 1), lane_of_thread(), run, to);
    }
  }
};

}  // namespace imp::cuda
