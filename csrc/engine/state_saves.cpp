// Chooses the positions of snapshots and takes their slots.
#include "engine/state_saves.h"

#include "base/ceil_div.h"
#include "base/error.h"
#include "engine/step_executor.h"

namespace imp {

StateSaves::StateSaves(KvBlocks& blocks, int n_tokens)
    : blocks_(blocks), n_tokens_(ceil_div(n_tokens, blocks.block_tokens()) * blocks.block_tokens()) {}

void StateSaves::take(Step& step) {
  step.saves.clear();
  if (!blocks_.states().is_used()) return;
  for (StepRow& row : step.rows) {
    IMP_CHECK(row.first_position == 0 || row.planned.sequence->table.state != kNoSlot);
    row.state = blocks_.take_state();
    IMP_CHECK(row.state != kNoSlot);
  }
  for (StepRow& row : step.rows) {
    const std::size_t first = step.saves.size();
    const int width = blocks_.block_tokens();
    const int end = row.first_position + row.planned.n_rows;
    for (int at = (row.first_position / width + 1) * width; at < end; at += width) {
      if (!is_snapshot(*row.planned.sequence, at)) continue;
      const std::int32_t slot = blocks_.take_snapshot();
      if (slot == kNoSlot) break;
      step.saves.push_back({.n_rows = at - row.first_position, .slot = slot});
    }
    step.saves.push_back({.n_rows = row.planned.n_rows, .slot = row.state});
    IMP_CHECK(step.saves.size() <= step.saves.capacity());
    row.saves = std::span(step.saves).subspan(first);
    row.is_snapshot = end % width == 0 && is_snapshot(*row.planned.sequence, end);
  }
}

void StateSaves::commit(const StepRow& row) {
  if (row.state == kNoSlot) return;
  BlockTable& table = row.planned.sequence->table;
  const int end = row.first_position + row.planned.n_rows;
  for (const StateSave& save : row.saves.first(row.saves.size() - 1)) {
    blocks_.keep_snapshot(table, row.first_position + save.n_rows, save.slot);
    blocks_.release_state(save.slot);
  }
  if (row.is_snapshot) blocks_.keep_snapshot(table, end, row.state);
  blocks_.advance_state(table, end, row.state);
}

void StateSaves::release(const StepRow& row) {
  if (row.state == kNoSlot) return;
  blocks_.release_state(row.state);
  if (row.saves.empty()) return;
  for (const StateSave& save : row.saves.first(row.saves.size() - 1)) blocks_.release_state(save.slot);
}

void StateSaves::release_all(const Step& step) {
  for (const StepRow& row : step.rows) release(row);
}

std::size_t StateSaves::most(std::size_t n_rows, std::size_t n_sequences) const noexcept {
  if (!blocks_.states().is_used()) return 0;
  return n_rows / static_cast<std::size_t>(blocks_.block_tokens()) + 2 * n_sequences;
}

// Only sessions and the prefix cache reuse a snapshot.
bool StateSaves::is_snapshot(const Sequence& sequence, int position) const noexcept {
  if (sequence.kind != SequenceKind::session && !blocks_.has_prefix_cache()) return false;
  const int width = blocks_.block_tokens();
  return position % n_tokens_ == 0 || position == (sequence.run->start - 1) / width * width;
}

}  // namespace imp
