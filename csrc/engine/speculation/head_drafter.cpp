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
namespace {

std::unique_ptr<KvPool> make_own_pool(Backend& backend, const DraftHead& head, const HeadOptions& options) {
  const auto geometry = head.kv_geometry(options.n_blocks + chain_blocks(head.limits()));
  return geometry ? backend.make_kv_pool(*geometry) : nullptr;
}

}  // namespace

HeadDrafter::HeadDrafter(Backend& backend, DraftHead& head, const ForwardPass& model, const HeadOptions& options)
    : backend_(backend),
      head_(head),
      model_(model),
      own_(make_own_pool(backend, head, options)),
      block_tokens_(model.kv_geometry(options.n_blocks, 0).block_tokens),
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
  const int max_blocks = ceil_div(options.max_context + kLimits.draft_tokens, block_tokens_);
  for (Drafting& drafting : drafting_) drafting.blocks.reserve(static_cast<std::size_t>(max_blocks));
  draws_.reserve(guesses);
  results_.reserve(guesses);
}

void HeadDrafter::read_cache(const KvPool& cache) {
  cells_ = own_ ? own_.get() : &cache;
}

void HeadDrafter::copy_blocks(std::span<const BlockCopy> copies) {
  if (!own_) return;
  for (const BlockCopy& copy : copies) backend_.copy_block(*own_, copy.from, copy.to);
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
  clear_batch();
  draws_.clear();
  results_.clear();
  for (std::size_t i = 0; i < n_drafting_; ++i) {
    const Drafting& drafting = drafting_[i];
    const Sequence& sequence = *drafting.request->sequence;
    positions_.push_back(sequence.position_of(own_ ? drafting.cell : drafting.cell + 1, 0));
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
      head_.guess({.tokens = {}, .positions = positions_, .sequences = sequences_, .logits_rows = {}}, from_, *cells_);
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
    if (!go_on(drafting)) continue;
    sequence.append_guess(drawn.token);
    if (i != n_left) std::swap(drafting_[n_left], drafting);
    ++n_left;
  }
  n_drafting_ = n_left;
}

// Goes to the cell of the next guess. Returns false if there is no room for it.
bool HeadDrafter::go_on(Drafting& drafting) {
  if (!own_) return true;
  ++drafting.cell;
  return reserve_cell(drafting);
}

// Allocates a block for the cell if it is beyond the sequence's own blocks. Only this round uses such blocks. Returns
// false if none is left.
bool HeadDrafter::reserve_cell(Drafting& drafting) {
  const auto block = static_cast<std::size_t>(drafting.cell / block_tokens_);
  if (block < drafting.blocks.size()) return true;
  if (next_block_ == own_->geometry().n_blocks) return false;
  drafting.blocks.push_back(next_block_++);
  return true;
}

void HeadDrafter::extend_drafts() {
  clear_batch();
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
                        own_.get());
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
