// Keeps shadows equal to their sequences.
#include "engine/speculation/shadow_sequences.h"

#include <algorithm>
#include <span>
#include <utility>

#include "engine/data/limits.h"

namespace imp {

const Shadow* ShadowSequences::find(SequenceId id) const noexcept {
  const auto found = shadows_.find(id);
  return found == shadows_.end() ? nullptr : found->second.get();
}

Shadow* ShadowSequences::find(SequenceId id) noexcept {
  const auto found = shadows_.find(id);
  return found == shadows_.end() ? nullptr : found->second.get();
}

Shadow& ShadowSequences::find_or_make(const Sequence& sequence) {
  auto found = shadows_.find(sequence.id);
  if (found == shadows_.end()) {
    auto made = std::make_unique<Shadow>();
    made->copy.id = sequence.id;
    made->copy.scope = sequence.scope;
    made->copy.run.emplace().returns.logprobs = true;
    made->copy.run->n_outputs = 1;  // not 0: the mask for the first output no longer applies
    found = shadows_.emplace(sequence.id, std::move(made)).first;
  }
  // The outputs of a run fit the sequence's list; guesses come after them.
  Sequence& copy = found->second->copy;
  copy.tokens.reserve(sequence.tokens.capacity() + static_cast<std::size_t>(kLimits.draft_tokens));
  copy.table.blocks.reserve(static_cast<std::size_t>(blocks_.blocks_for(static_cast<int>(copy.tokens.capacity()))));
  return *found->second;
}

// Makes the tokens equal, and keeps the cache of the common prefix. Returns false if the draft model lacks a token. The
// copy then ends before that token.
bool ShadowSequences::follow(Sequence& copy, const Sequence& sequence) {
  const std::span<const std::int32_t> tokens = sequence.text_after_media();
  const auto differing = std::ranges::mismatch(copy.tokens, tokens);
  copy.held = std::min(copy.held, static_cast<int>(differing.in1 - copy.tokens.begin()));
  copy.tokens.erase(differing.in1, copy.tokens.end());
  const auto unknown = std::find_if(differing.in2, tokens.end(), [&](auto token) { return token >= n_tokens_; });
  copy.tokens.insert(copy.tokens.end(), differing.in2, unknown);
  // The last token is evaluated again if it is held: the next one is drawn from its row.
  copy.held = std::max(0, std::min(copy.held, static_cast<int>(copy.tokens.size()) - 1));
  blocks_.truncate(copy.table, copy.held);
  return unknown == tokens.end();
}

Shadow* ShadowSequences::update(const Sequence& sequence, std::uint64_t round) {
  Shadow& shadow = find_or_make(sequence);
  Sequence& copy = shadow.copy;
  shadow.last_round = round;
  if (!follow(copy, sequence)) return nullptr;
  copy.params = sequence.params;
  copy.stream = sequence.stream;
  copy.base = sequence.base - sequence.media.last_end();  // so that its outputs have the same numbers
  // Only tokens that the sequence has enter the prefix cache, no guesses.
  blocks_.commit(copy.table, copy.scope, std::span(copy.tokens).first(static_cast<std::size_t>(copy.held)));
  if (copy.held == 0 && !sequence.bypass_prefix) {
    copy.held = blocks_.match(copy.table, copy.scope.key, copy.tokens, 0);
  }
  return &shadow;
}

bool ShadowSequences::prepare(Shadow& shadow, int n_rows, std::vector<BlockCopy>& copies) {
  BlockTable& table = shadow.copy.table;
  const int first = shadow.copy.held;
  while (blocks_.missing(table, first, first + n_rows) > blocks_.n_available()) {
    Shadow* idle = longest_idle(shadow.last_round);
    if (idle == nullptr) return false;
    clear(*idle);
  }
  blocks_.prepare(table, first, first + n_rows, copies);
  return true;
}

Shadow* ShadowSequences::longest_idle(std::uint64_t round) const noexcept {
  Shadow* longest = nullptr;
  for (const auto& [id, shadow] : shadows_) {
    if (shadow->copy.table.blocks.empty() || shadow->last_round + kIdleRounds > round) continue;
    if (longest == nullptr || shadow->last_round < longest->last_round) longest = shadow.get();
  }
  return longest;
}

void ShadowSequences::clear(Shadow& shadow) {
  blocks_.truncate(shadow.copy.table, 0);
  shadow.copy.held = 0;
}

void ShadowSequences::erase(SequenceId id) noexcept {
  const auto found = shadows_.find(id);
  if (found == shadows_.end()) return;
  clear(*found->second);
  shadows_.erase(found);
}

}  // namespace imp
