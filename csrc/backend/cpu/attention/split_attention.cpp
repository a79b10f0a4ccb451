// Scores, weights, and weighted values.
#include "backend/cpu/attention/split_attention.h"

#include <algorithm>

#include "backend/cpu/attention/visible_keys.inl"
#include "base/ceil_div.h"

namespace imp::cpu {

void attend_split(const KeyOps& keys, const ValueOps& values, const AttentionTile& tile, const SplitPanels& panels,
                  SplitScratch scratch, const AttentionState& state) {
  KeyRange seen[kTileQueries];
  KeyRange any = {kSplitTokens, 0};
  for_each_query(tile, [&](int i, int row, int) {
    seen[i] = visible_keys(tile, row, panels.first_position);
    if (seen[i].begin >= seen[i].end) return;
    any.begin = std::min(any.begin, seen[i].begin);
    any.end = std::max(any.end, seen[i].end);
  });
  if (any.begin >= any.end) return;
  keys.score(tile, scratch.queries, panels, any.begin / kPanelTokens, ceil_div(any.end, kPanelTokens), scratch.scores);
  values.weigh(tile, seen, scratch.scores, state);
  values.add(tile, panels, seen, any, scratch.scores, state.values);
}

}  // namespace imp::cpu
