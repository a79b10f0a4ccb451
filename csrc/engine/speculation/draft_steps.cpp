// Runs the steps of a draft model.
#include "engine/speculation/draft_steps.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "model/draft_model.h"

namespace imp {
namespace {

KvBlocksOptions shadow_blocks(const DraftModelOptions& options, const ForwardPass& forward) {
  const KvGeometry geometry = forward.kv_geometry(options.n_blocks, 0);
  const bool has_state = geometry.state.n_layers > 0;
  return {.n_blocks = options.n_blocks,
          .block_tokens = geometry.block_tokens,
          .prefix_cache = options.prefix_cache && !has_state,
          .n_state_slots = has_state ? kDraftStateSlots : 0};
}

}  // namespace

DraftSteps::DraftSteps(Backend& backend, ForwardPass& forward, const DraftModelOptions& options, Clock clock)
    : clock_(clock ? std::move(clock) : Clock(steady_now)),
      forward_(forward),
      max_context_(std::min(options.max_context, options.n_blocks * shadow_blocks(options, forward).block_tokens)),
      max_rows_(forward.limits().max_rows),
      max_sequences_(std::min(options.max_running, forward.limits().max_logits_rows)),
      shadows_(shadow_blocks(options, forward), keyed_block_hash(random_secret()), forward.vocab_size()),
      states_(shadows_.blocks(), 1),
      executor_(
          backend, forward, states_, shadows_.blocks(),
          {.max_rows = max_rows_, .max_logits_rows = forward.limits().max_logits_rows, .max_running = max_sequences_},
          options.suppressed_tokens.empty() ? TokenMask{}
                                            : mask_without(options.suppressed_tokens, forward.vocab_size()),
          clock_) {
  const auto most = static_cast<std::size_t>(max_sequences_);
  step_.reserve(most, most, states_.max_saves(static_cast<std::size_t>(max_rows_), most, 0));
  rows_.reserve(most);
  planned_.reserve(most);
  copies_.reserve(most);
}

void DraftSteps::clear() {
  rows_.clear();
  planned_.clear();
}

bool DraftSteps::add(Shadow& shadow, int n_rows) {
  if (!shadows_.prepare(shadow, n_rows, copies_)) return false;
  rows_.push_back({.sequence = &shadow.copy, .n_rows = n_rows, .last = n_rows == shadow.copy.n_left()});
  planned_.push_back(&shadow);
  return true;
}

int DraftSteps::n_rows() const noexcept {
  int n = 0;
  for (const PlannedRows& planned : rows_) n += planned.n_rows;
  return n;
}

bool DraftSteps::run() {
  try {
    executor_.copy_blocks(copies_);
    executor_.begin(rows_, step_);
    executor_.finish(step_);
  } catch (const DeviceError&) {
    throw;
  } catch (...) {
    // A block without its copy has no content.
    if (!copies_.empty()) std::ranges::for_each(planned_, [this](Shadow* each) { shadows_.clear(*each); });
    copies_.clear();
    return false;
  }
  for (const PlannedRows& planned : rows_) planned.sequence->held += planned.n_rows;
  for (const StepRow& row : step_.rows) states_.commit(row);
  return true;
}

}  // namespace imp
