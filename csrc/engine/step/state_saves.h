// The slots that a step writes recurrent state to.
#pragma once

#include "engine/kv/kv_blocks.h"

namespace imp {

struct Step;
struct StepRow;
struct Sequence;

// Each sequence of a step reads its state from one slot and writes the new one to another, so that a failed step
// changes nothing. Besides, a step saves snapshots: at the last full block before a prompt's last token, because a
// later turn or an equal prompt continues from there, and every few blocks of prompts and outputs. A sequence with
// guesses saves its state after each row, because any of them may be the last that counts.
class StateSaves {
 public:
  // A snapshot every n_tokens, rounded up to whole blocks.
  StateSaves(KvBlocks& blocks, int n_tokens);

  // Takes the slots of all rows. The scheduler has left enough for the new states; a snapshot without a slot is left
  // out.
  void take(Step& step);
  // The step is done: the sequence, whose tokens are in its table, has the new state.
  void commit(const StepRow& row);
  // The same for a sequence with guesses: its first n_rows rows are accepted. Rows are accepted one by one.
  void commit_guessed(const StepRow& row, int n_rows);
  // No row after the first n_rows is accepted.
  void release_guessed(const StepRow& row, int n_rows);
  // The row failed or its sequence has ended.
  void release(const StepRow& row);
  void release_all(const Step& step);
  // The most saves of a step.
  std::size_t max_saves(std::size_t n_rows, std::size_t n_sequences, std::size_t n_guesses) const noexcept;

 private:
  void save_snapshots(StepRow& row, Step& step);
  void save_guessed(StepRow& row, Step& step);
  bool is_snapshot(const Sequence& sequence, int position) const noexcept;

  KvBlocks& blocks_;
  int n_tokens_;
};

}  // namespace imp
