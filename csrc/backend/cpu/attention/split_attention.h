// Attention of a tile of queries over one split of keys, for the merge of splits: FlashAttention with split-K
// ("FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning"; Flash-Decoding) on a paged
// cache. It differs in the order of sums: splits are aligned to position 0 and merged in ascending order, so that
// neither batch nor threads change a bit.
//
// Scores have tokens in vector lanes and sum over head_dim in order. Values have head_dim in lanes and sum over tokens
// in order. Only the sum of the softmax weights crosses lanes. So the number of queries, panels or lanes per loop
// changes no bit. A few queries read memory in order: some panels at a time, for all kv heads of the tile. Many queries
// share panels in a CPU cache. Masked keys never enter a result: the cache may hold NaN there. attend_split() calls
// the ops of the layer's types.
#pragma once

#include "backend/cpu/ops/cpu_ops.h"

namespace imp::cpu {

// Of one thread; packed queries are valid for all splits of a tile.
struct SplitScratch {
  float* scores;   // [kTileQueries][kScoreStride]
  float* queries;  // kTileQueries · padded head_dim
};

// Sets `state` to the tile's softmax over the split.
void attend_split(const KeyOps& keys, const ValueOps& values, const AttentionTile& tile, const SplitPanels& panels,
                  SplitScratch scratch, const AttentionState& state);

}  // namespace imp::cpu
