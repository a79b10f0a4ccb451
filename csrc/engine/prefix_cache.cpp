// The index of prefix blocks: chains, a hash table of fixed size, and the order of parking.
#include "engine/prefix_cache.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/error.h"

namespace imp {

PrefixCache::PrefixCache(int n_blocks, int block_tokens, BlockHash hash)
    : block_tokens_(block_tokens), hash_(std::move(hash)) {
  IMP_CHECK(n_blocks >= 0 && block_tokens > 0);
  const auto n = static_cast<std::size_t>(n_blocks);
  entries_.resize(n);
  ids_.resize(n * static_cast<std::size_t>(block_tokens));
  slots_.resize(std::bit_ceil(2 * n + 1), kNone);
  stack_.reserve(n);
}

std::int32_t PrefixCache::find(std::int32_t parent, const BlockKey& scope, std::span<const std::int32_t> wanted) const {
  const std::int32_t block = slots_[slot_of(key_of(parent, scope, wanted))];
  if (block == kNone) return kNone;
  const Entry& found = entry(block);
  const bool equal = found.parent == parent && found.scope == scope && std::ranges::equal(ids(block), wanted);
  return equal ? block : kNone;
}

bool PrefixCache::insert(std::int32_t block, std::int32_t parent, const BlockKey& scope,
                         std::span<const std::int32_t> held) {
  Entry& added = entry(block);
  IMP_CHECK(!added.indexed && held.size() == ids(block).size());
  IMP_CHECK(parent == kNone || entry(parent).indexed);
  const BlockKey key = key_of(parent, scope, held);
  if (slots_[slot_of(key)] != kNone) return false;
  added = Entry{.key = key, .scope = scope, .parent = parent, .indexed = true};
  std::ranges::copy(held, ids(block).begin());
  take_slot(block);
  link(block);
  return true;
}

void PrefixCache::replace(std::int32_t parked, std::int32_t block) {
  Entry& old = entry(parked);
  Entry& added = entry(block);
  IMP_CHECK(old.indexed && old.parked && !added.indexed);
  unpark(parked);
  give_slot(parked);
  unlink(parked);
  added =
      Entry{.key = old.key, .scope = old.scope, .parent = old.parent, .first_child = old.first_child, .indexed = true};
  for (std::int32_t child = added.first_child; child != kNone; child = entry(child).next_sibling) {
    entry(child).parent = block;
  }
  std::ranges::copy(ids(parked), ids(block).begin());
  old = Entry{};
  take_slot(block);
  link(block);
}

void PrefixCache::remove(std::int32_t block, std::vector<std::int32_t>& unheld) {
  IMP_CHECK(entry(block).indexed);
  unlink(block);
  stack_.assign(1, block);
  while (!stack_.empty()) {
    const std::int32_t next = stack_.back();
    stack_.pop_back();
    for (std::int32_t child = entry(next).first_child; child != kNone; child = entry(child).next_sibling) {
      stack_.push_back(child);
    }
    if (entry(next).parked) {
      unpark(next);
      unheld.push_back(next);
    }
    give_slot(next);
    entry(next) = Entry{};
  }
}

void PrefixCache::park(std::int32_t block) {
  Entry& parked = entry(block);
  IMP_CHECK(parked.indexed && !parked.parked);
  parked.parked = true;
  parked.older = newest_;
  parked.newer = kNone;
  (newest_ == kNone ? oldest_ : entry(newest_).newer) = block;
  newest_ = block;
}

void PrefixCache::unpark(std::int32_t block) {
  Entry& held = entry(block);
  IMP_CHECK(held.parked);
  held.parked = false;
  (held.older == kNone ? oldest_ : entry(held.older).newer) = held.newer;
  (held.newer == kNone ? newest_ : entry(held.newer).older) = held.older;
  held.older = held.newer = kNone;
}

PrefixCache::Entry& PrefixCache::entry(std::int32_t block) {
  return entries_.at(static_cast<std::size_t>(block));
}

const PrefixCache::Entry& PrefixCache::entry(std::int32_t block) const {
  return entries_.at(static_cast<std::size_t>(block));
}

std::span<std::int32_t> PrefixCache::ids(std::int32_t block) {
  const auto n = static_cast<std::size_t>(block_tokens_);
  return std::span(ids_).subspan(static_cast<std::size_t>(block) * n, n);
}

std::span<const std::int32_t> PrefixCache::ids(std::int32_t block) const {
  const auto n = static_cast<std::size_t>(block_tokens_);
  return std::span(ids_).subspan(static_cast<std::size_t>(block) * n, n);
}

BlockKey PrefixCache::key_of(std::int32_t parent, const BlockKey& scope, std::span<const std::int32_t> held) const {
  return hash_(parent == kNone ? scope : entry(parent).key, held);
}

// The slot that holds the key, or the free one where it would go.
std::size_t PrefixCache::slot_of(const BlockKey& key) const {
  const std::size_t mask = slots_.size() - 1;
  std::size_t slot = key.low & mask;
  while (slots_[slot] != kNone && entry(slots_[slot]).key != key) slot = (slot + 1) & mask;
  return slot;
}

void PrefixCache::take_slot(std::int32_t block) {
  slots_[slot_of(entry(block).key)] = block;
}

// Empties a slot and moves up what had been pushed past it, so that no search stops short.
void PrefixCache::give_slot(std::int32_t block) {
  const std::size_t mask = slots_.size() - 1;
  std::size_t hole = slot_of(entry(block).key);
  IMP_CHECK(slots_[hole] == block);
  for (std::size_t slot = (hole + 1) & mask; slots_[slot] != kNone; slot = (slot + 1) & mask) {
    const std::size_t home = entry(slots_[slot]).key.low & mask;
    if (((slot - home) & mask) < ((slot - hole) & mask)) continue;
    slots_[hole] = slots_[slot];
    hole = slot;
  }
  slots_[hole] = kNone;
}

void PrefixCache::link(std::int32_t block) {
  Entry& child = entry(block);
  if (child.parent == kNone) return;
  Entry& parent = entry(child.parent);
  child.next_sibling = parent.first_child;
  child.previous_sibling = kNone;
  if (parent.first_child != kNone) entry(parent.first_child).previous_sibling = block;
  parent.first_child = block;
}

void PrefixCache::unlink(std::int32_t block) {
  const Entry& child = entry(block);
  if (child.parent == kNone) return;
  (child.previous_sibling == kNone ? entry(child.parent).first_child : entry(child.previous_sibling).next_sibling) =
      child.next_sibling;
  if (child.next_sibling != kNone) entry(child.next_sibling).previous_sibling = child.previous_sibling;
}

}  // namespace imp
