// Chooses the positions of snapshots and takes their slots.
#include "engine/step/state_saves.h"

#include "base/ceil_div.h"
#include "base/error.h"
#include "engine/sequence/sequence.h"
#include "engine/step/step.h"

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
  // Guesses first: snapshots take what is left.
  for (StepRow& row : step.rows) {
    if (row.planned.n_guesses > 0) save_guessed(row, step);
  }
  for (StepRow& row : step.rows) {
    if (row.planned.n_guesses == 0) save_snapshots(row, step);
  }
  IMP_CHECK(step.saves.size() <= step.saves.capacity());
}

void StateSaves::save_snapshots(StepRow& row, Step& step) {
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
  row.saves = std::span(step.saves).subspan(first);
  row.is_snapshot = is_snapshot(*row.planned.sequence, end);
}

void StateSaves::save_guessed(StepRow& row, Step& step) {
  const std::size_t first = step.saves.size();
  for (int n_rows = 1; n_rows < row.planned.n_rows; ++n_rows) {
    const std::int32_t slot = blocks_.take_state();
    IMP_CHECK(slot != kNoSlot);
    step.saves.push_back({.n_rows = n_rows, .slot = slot});
  }
  step.saves.push_back({.n_rows = row.planned.n_rows, .slot = row.state});
  row.saves = std::span(step.saves).subspan(first);
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

void StateSaves::commit_guessed(const StepRow& row, int n_rows) {
  if (row.state == kNoSlot) return;
  BlockTable& table = row.planned.sequence->table;
  const int end = row.first_position + n_rows;
  const std::int32_t slot = row.saves[static_cast<std::size_t>(n_rows) - 1].slot;
  if (is_snapshot(*row.planned.sequence, end)) blocks_.keep_snapshot(table, end, slot);
  blocks_.advance_state(table, end, slot);
}

void StateSaves::release_guessed(const StepRow& row, int n_rows) {
  if (row.state == kNoSlot) return;
  for (const StateSave& save : row.saves.subspan(static_cast<std::size_t>(n_rows))) blocks_.release_state(save.slot);
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

std::size_t StateSaves::max_saves(std::size_t n_rows, std::size_t n_sequences, std::size_t n_guesses) const noexcept {
  if (!blocks_.states().is_used()) return 0;
  return n_rows / static_cast<std::size_t>(blocks_.block_tokens()) + 2 * n_sequences + n_guesses;
}

// Only full blocks have one, and only sessions and the prefix cache reuse it: no state after a gap.
bool StateSaves::is_snapshot(const Sequence& sequence, int position) const noexcept {
  if (position % blocks_.block_tokens() != 0 || position > sequence.n_shareable()) return false;
  if (sequence.kind != SequenceKind::session && !blocks_.has_prefix_cache()) return false;
  const int width = blocks_.block_tokens();
  return position % n_tokens_ == 0 || position == (sequence.run->start - 1) / width * width;
}

}  // namespace imp
