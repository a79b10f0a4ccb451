// The rows of a step that a head takes.
#include <algorithm>

#include "backend/batch.h"
#include "base/error.h"
#include "engine/sequence/sequence.h"
#include "engine/speculation/head_drafter.h"
#include "engine/step/position_planes.h"
#include "engine/step/step.h"

namespace imp {

void HeadDrafter::clear_batch() noexcept {
  tokens_.clear();
  positions_.clear();
  from_.clear();
  sequences_.clear();
  of_sequences_.clear();
}

void HeadDrafter::observe(const Step& step) {
  last_rows_.clear();
  if (is_off()) return;
  clear_batch();
  own_ ? add_rows(step) : add_last_rows(step);
  if (tokens_.empty()) return;
  add_planes(model_.n_planes(), sequences_, of_sequences_, positions_);
  try {
    head_.observe({.tokens = tokens_, .positions = positions_, .sequences = sequences_, .logits_rows = {}},
                  model_.hidden(), from_, own_.get());
  } catch (const DeviceError&) {
    throw;
  } catch (...) {
    last_rows_.clear();
    fail();
  }
}

// Adds the rows of the step that are kept and whose next tokens are known. After a step, two sequences may share a
// block that both evaluated; only one of them writes to it.
void HeadDrafter::add_rows(const Step& step) {
  ++n_steps_;
  for (const StepRow& row : step.rows) {
    if (row.planned.sequence == nullptr) continue;
    const Sequence& sequence = *row.planned.sequence;
    const auto n_tokens = static_cast<int>(sequence.tokens.size());
    const int end = std::min({sequence.held, row.first_position + row.planned.n_rows, n_tokens - 1});
    bool is_last_written = false;
    for (int first = row.first_position; first < end;) {
      const int next = std::min(end, (first / block_tokens_ + 1) * block_tokens_);
      is_last_written = claim_block(sequence.table.blocks[static_cast<std::size_t>(first / block_tokens_)], sequence);
      if (is_last_written) {
        add_part(sequence, row.first_row + first - row.first_position, first, next - first);
      }
      first = next;
    }
    if (!is_last_written || end != sequence.held) continue;
    last_rows_.push_back({.sequence = row.id,
                          .cell = end - 1,
                          .token = tokens_.back(),
                          .row = static_cast<std::int32_t>(tokens_.size()) - 1});
  }
}

void HeadDrafter::add_part(const Sequence& sequence, int first_row, int first_position, int n_rows) {
  const auto first = static_cast<int>(tokens_.size());
  const bool continues = !sequences_.empty() && sequences_.back().blocks.data() == sequence.table.blocks.data() &&
                         sequences_.back().first_position + sequences_.back().n_rows == first_position;
  if (continues) {
    sequences_.back().n_rows += n_rows;
  } else {
    sequences_.push_back(
        {.first_row = first, .n_rows = n_rows, .first_position = first_position, .blocks = sequence.table.blocks});
    of_sequences_.push_back(&sequence);
  }
  for (int i = 0; i < n_rows; ++i) {
    const int cell = first_position + i;
    tokens_.push_back(token_after(sequence, cell));
    positions_.push_back(sequence.position_of(cell, 0));
    from_.push_back(first_row + i);
  }
}

// Without a cache of its own, a head needs the row of the last cell that a sequence holds.
void HeadDrafter::add_last_rows(const Step& step) {
  const auto most = static_cast<std::size_t>(head_.limits().max_logits_rows);
  for (const StepRow& row : step.rows) {
    if (row.planned.sequence == nullptr || tokens_.size() == most) continue;
    const Sequence& sequence = *row.planned.sequence;
    const int cell = sequence.held - 1;
    const bool is_evaluated = row.first_position <= cell && cell < row.first_position + row.planned.n_rows;
    if (!is_evaluated || sequence.n_left() == 0) continue;
    last_rows_.push_back({.sequence = row.id,
                          .cell = cell,
                          .token = token_after(sequence, cell),
                          .row = static_cast<std::int32_t>(tokens_.size())});
    tokens_.push_back(last_rows_.back().token);
    from_.push_back(row.first_row + cell - row.first_position);
  }
}

std::int32_t HeadDrafter::token_after(const Sequence& sequence, int cell) const {
  const std::int32_t next = sequence.history()[static_cast<std::size_t>(sequence.place_of(cell)) + 1];
  return is_media(next) ? media_token_ : next;
}

// Returns false if another sequence writes to the block in this step.
bool HeadDrafter::claim_block(std::int32_t block, const Sequence& sequence) {
  Writer& writer = writers_[static_cast<std::size_t>(block)];
  if (writer.step != n_steps_) writer = {.step = n_steps_, .sequence = sequence.id};
  return writer.sequence == sequence.id;
}

}  // namespace imp
