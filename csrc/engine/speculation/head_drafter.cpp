// Keeps the head's cache up to date, and runs its rounds.
#include "engine/speculation/head_drafter.h"

#include <algorithm>
#include <utility>

#include "backend/batch.h"
#include "base/ceil_div.h"
#include "base/error.h"
#include "engine/kv/kv_blocks.h"
#include "engine/sequence/sequence.h"
#include "engine/speculation/drawn_guess.h"
#include "engine/step/drawing.h"
#include "engine/step/position_planes.h"
#include "engine/step/step.h"

namespace imp {

HeadDrafter::HeadDrafter(Backend& backend, DraftHead& head, const ForwardPass& model, const HeadOptions& options)
    : backend_(backend),
      head_(head),
      model_(model),
      pool_(backend.make_kv_pool(head.kv_geometry(options.n_blocks + chain_blocks(head.limits())))),
      n_blocks_(options.n_blocks),
      cost_of_token_(options.cost_of_token),
      suppressed_(options.suppressed_tokens.empty() ? TokenMask{}
                                                    : mask_without(options.suppressed_tokens, head.vocab_size())),
      media_token_(options.media_token) {
  const auto rows = static_cast<std::size_t>(head.limits().max_rows);
  const auto guesses = static_cast<std::size_t>(head.limits().max_logits_rows);
  for (std::vector<std::int32_t>* list : {&tokens_, &from_}) list->reserve(rows);
  positions_.reserve(rows * static_cast<std::size_t>(model.n_planes()));
  sequences_.reserve(rows);
  of_sequences_.reserve(rows);
  last_rows_.reserve(rows);
  writers_.resize(static_cast<std::size_t>(n_blocks_));
  drafting_.resize(guesses);
  const int max_blocks = ceil_div(options.max_context + kLimits.draft_tokens, pool_->geometry().block_tokens);
  for (Drafting& drafting : drafting_) drafting.blocks.reserve(static_cast<std::size_t>(max_blocks));
  draws_.reserve(guesses);
  results_.reserve(guesses);
}

void HeadDrafter::copy_blocks(std::span<const BlockCopy> copies) {
  for (const BlockCopy& copy : copies) backend_.copy_block(*pool_, copy.from, copy.to);
}

void HeadDrafter::observe(const Step& step) {
  last_rows_.clear();
  if (is_off()) return;
  add_rows(step);
  if (tokens_.empty()) return;
  add_planes(model_.n_planes(), sequences_, of_sequences_, positions_);
  try {
    head_.observe({.tokens = tokens_, .positions = positions_, .sequences = sequences_, .logits_rows = {}},
                  model_.hidden(), from_, *pool_);
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
  tokens_.clear();
  positions_.clear();
  from_.clear();
  sequences_.clear();
  of_sequences_.clear();
  ++n_steps_;
  const int block_tokens = pool_->geometry().block_tokens;
  for (const StepRow& row : step.rows) {
    if (row.planned.sequence == nullptr) continue;
    const Sequence& sequence = *row.planned.sequence;
    const auto n_tokens = static_cast<int>(sequence.tokens.size());
    const int end = std::min({sequence.held, row.first_position + row.planned.n_rows, n_tokens - 1});
    bool is_last_written = false;
    for (int first = row.first_position; first < end;) {
      const int next = std::min(end, (first / block_tokens + 1) * block_tokens);
      is_last_written = claim_block(sequence.table.blocks[static_cast<std::size_t>(first / block_tokens)], sequence);
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
    const std::int32_t next = sequence.history()[static_cast<std::size_t>(sequence.place_of(cell)) + 1];
    tokens_.push_back(is_media(next) ? media_token_ : next);
    positions_.push_back(sequence.position_of(cell, 0));
    from_.push_back(first_row + i);
  }
}

// Returns false if another sequence writes to the block in this step.
bool HeadDrafter::claim_block(std::int32_t block, const Sequence& sequence) {
  Writer& writer = writers_[static_cast<std::size_t>(block)];
  if (writer.step != n_steps_) writer = {.step = n_steps_, .sequence = sequence.id};
  return writer.sequence == sequence.id;
}

const HeadDrafter::LastRow* HeadDrafter::last_row_of(const Sequence& sequence) const noexcept {
  const auto found = std::ranges::find(last_rows_, sequence.id, &LastRow::sequence);
  const bool is_last = found != last_rows_.end() && found->cell + 1 == sequence.held && sequence.n_left() == 1 &&
                       found->token == sequence.tokens.back();
  return is_last ? &*found : nullptr;
}

void HeadDrafter::draft(std::span<DraftRequest> requests) {
  if (is_off()) return;
  choose(requests);
  if (n_drafting_ == 0) return;
  try {
    run_round();
    n_failures_ = 0;
  } catch (const DeviceError&) {
    end_round();
    throw;
  } catch (...) {
    for (DraftRequest& request : requests) request.guesses.clear();
    fail();
  }
  end_round();
}

void HeadDrafter::choose(std::span<DraftRequest> requests) {
  n_drafting_ = 0;
  next_block_ = n_blocks_;
  for (DraftRequest& request : requests) {
    const LastRow* last = last_row_of(*request.sequence);
    if (last == nullptr || request.n_wanted <= 0 || request.sequence->run->constrained) continue;
    if (n_drafting_ == drafting_.size()) return;
    Drafting& drafting = drafting_[n_drafting_++];
    drafting.request = &request;
    drafting.row = last->row;
    drafting.cell = last->cell;
    const std::vector<std::int32_t>& blocks = request.sequence->table.blocks;
    drafting.blocks.assign(blocks.begin(), blocks.end());
  }
}

void HeadDrafter::run_round() {
  for (;;) {
    guess();
    take_draws();
    if (n_drafting_ == 0) return;
    extend_drafts();
  }
}

void HeadDrafter::guess() {
  positions_.clear();
  from_.clear();
  sequences_.clear();
  of_sequences_.clear();
  draws_.clear();
  results_.clear();
  for (std::size_t i = 0; i < n_drafting_; ++i) {
    const Drafting& drafting = drafting_[i];
    const Sequence& sequence = *drafting.request->sequence;
    positions_.push_back(sequence.position_of(drafting.cell, 0));
    of_sequences_.push_back(&sequence);
    from_.push_back(drafting.row);
    sequences_.push_back(
        {.first_row = static_cast<int>(i), .n_rows = 1, .first_position = drafting.cell, .blocks = drafting.blocks});
    SampleRequest& request = draws_.emplace_back(request_after(sequence.history(), sequence, static_cast<int>(i)));
    request.masks.front() = bits(suppressed_);
    request.logprob = true;
  }
  results_.resize(n_drafting_);
  add_planes(model_.n_planes(), sequences_, of_sequences_, positions_);
  const Rows logits =
      head_.guess({.tokens = {}, .positions = positions_, .sequences = sequences_, .logits_rows = {}}, from_, *pool_);
  draw_tokens(backend_, logits, draws_, results_);
}

// Appends the drawn guesses. Removes the sequences that want no further guess from the round.
void HeadDrafter::take_draws() {
  std::size_t n_left = 0;
  for (std::size_t i = 0; i < n_drafting_; ++i) {
    Drafting& drafting = drafting_[i];
    Sequence& sequence = *drafting.request->sequence;
    std::vector<Guess>& guesses = drafting.request->guesses;
    const SampleResult& drawn = results_[i];
    if (drawn.status == SampleStatus::non_finite) {
      throw InternalError(Reason::NON_FINITE, "the logits of the draft head are not finite");
    }
    const auto n = static_cast<int>(guesses.size());
    if (drawn.status != SampleStatus::ok || ends_run(*sequence.run, drawn.token, n)) continue;
    guesses.push_back({.token = drawn.token, .confidence = confidence_of(drawn.logprob)});
    if (n + 1 >= drafting.request->n_wanted) continue;
    drafting.row = static_cast<std::int32_t>(i);
    ++drafting.cell;
    if (!reserve_cell(drafting)) continue;
    sequence.append_guess(drawn.token);
    if (i != n_left) std::swap(drafting_[n_left], drafting);
    ++n_left;
  }
  n_drafting_ = n_left;
}

// Allocates a block for the cell if it is beyond the sequence's own blocks. Only this round uses such blocks. Returns
// false if none is left.
bool HeadDrafter::reserve_cell(Drafting& drafting) {
  const auto block = static_cast<std::size_t>(drafting.cell / pool_->geometry().block_tokens);
  if (block < drafting.blocks.size()) return true;
  if (next_block_ == pool_->geometry().n_blocks) return false;
  drafting.blocks.push_back(next_block_++);
  return true;
}

void HeadDrafter::extend_drafts() {
  tokens_.clear();
  positions_.clear();
  from_.clear();
  sequences_.clear();
  of_sequences_.clear();
  for (std::size_t i = 0; i < n_drafting_; ++i) {
    Drafting& drafting = drafting_[i];
    tokens_.push_back(drafting.request->guesses.back().token);
    positions_.push_back(drafting.request->sequence->position_of(drafting.cell, 0));
    of_sequences_.push_back(drafting.request->sequence);
    from_.push_back(drafting.row);
    sequences_.push_back(
        {.first_row = static_cast<int>(i), .n_rows = 1, .first_position = drafting.cell, .blocks = drafting.blocks});
    drafting.row = static_cast<std::int32_t>(i);
  }
  add_planes(model_.n_planes(), sequences_, of_sequences_, positions_);
  head_.observe_guesses({.tokens = tokens_, .positions = positions_, .sequences = sequences_, .logits_rows = {}}, from_,
                        *pool_);
}

// Removes the guesses from the sequences. The requests keep them.
void HeadDrafter::end_round() noexcept {
  for (Drafting& drafting : drafting_) {
    if (drafting.request != nullptr) drafting.request->sequence->drop_guesses();
    drafting.request = nullptr;
  }
  n_drafting_ = 0;
  last_rows_.clear();
}

void HeadDrafter::fail() noexcept {
  ++n_failures_;
}

}  // namespace imp
