// Attention of a tile of queries over one split of keys, from the ops of the layer's types.
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
