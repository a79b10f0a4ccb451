// The index of prefix blocks: chains that are found by key.
#include "engine/kv/prefix_cache.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace imp {

PrefixCache::PrefixCache(const Size& size, BlockHash hash)
    : block_tokens_(size.block_tokens),
      hash_(std::move(hash)),
      entries_(static_cast<std::size_t>(size.n_blocks)),
      ids_(static_cast<std::size_t>(size.n_blocks) * static_cast<std::size_t>(size.block_tokens)),
      blocks_(static_cast<std::size_t>(size.n_blocks)),
      evictable_(size.n_blocks, size.max_per_tenant) {
  stack_.reserve(entries_.size());
}

std::int32_t PrefixCache::find(std::int32_t parent, const BlockKey& scope, std::span<const std::int32_t> wanted) const {
  const std::int32_t block = blocks_.find(key_of(parent, scope, wanted), stored_key());
  if (block == kNone) return kNone;
  const Entry& found = entry(block);
  const bool equal = found.parent == parent && found.scope == scope && std::ranges::equal(ids(block), wanted);
  return equal ? block : kNone;
}

bool PrefixCache::insert(std::int32_t block, std::int32_t parent, const CacheScope& scope,
                         std::span<const std::int32_t> held) {
  Entry& added = entry(block);
  IMP_CHECK(!added.indexed && held.size() == ids(block).size());
  IMP_CHECK(parent == kNone || entry(parent).indexed);
  const BlockKey key = key_of(parent, scope.key, held);
  if (blocks_.find(key, stored_key()) != kNone) return false;
  const BlockKey& tenant = parent == kNone ? scope.tenant : entry(parent).tenant;
  added = Entry{.key = key, .scope = scope.key, .tenant = tenant, .parent = parent, .indexed = true};
  std::ranges::copy(held, ids(block).begin());
  blocks_.insert(block, stored_key());
  evictable_.enter(block, tenant);
  link(block);
  return true;
}

void PrefixCache::replace(std::int32_t evictable, std::int32_t block) {
  Entry& old = entry(evictable);
  Entry& added = entry(block);
  IMP_CHECK(old.indexed && !added.indexed);
  IMP_CHECK(evictable_.is_evictable(evictable));
  evictable_.leave(evictable);
  blocks_.erase(evictable, stored_key());
  unlink(evictable);
  added = Entry{.key = old.key,
                .scope = old.scope,
                .tenant = old.tenant,
                .parent = old.parent,
                .first_child = old.first_child,
                .indexed = true};
  for (std::int32_t child = added.first_child; child != kNone; child = entry(child).next_sibling) {
    entry(child).parent = block;
  }
  std::ranges::copy(ids(evictable), ids(block).begin());
  old = Entry{};
  blocks_.insert(block, stored_key());
  evictable_.enter(block, added.tenant);
  link(block);
}

void PrefixCache::remove(std::int32_t block, std::vector<std::int32_t>& unowned) {
  IMP_CHECK(entry(block).indexed);
  unlink(block);
  stack_.assign(1, block);
  while (!stack_.empty()) {
    const std::int32_t next = stack_.back();
    stack_.pop_back();
    for (std::int32_t child = entry(next).first_child; child != kNone; child = entry(child).next_sibling) {
      stack_.push_back(child);
    }
    if (evictable_.is_evictable(next)) unowned.push_back(next);
    evictable_.leave(next);
    blocks_.erase(next, stored_key());
    entry(next) = Entry{};
  }
}

PrefixCache::Entry& PrefixCache::entry(std::int32_t block) {
  IMP_CHECK(block >= 0 && static_cast<std::size_t>(block) < entries_.size());
  return entries_[static_cast<std::size_t>(block)];
}

const PrefixCache::Entry& PrefixCache::entry(std::int32_t block) const {
  IMP_CHECK(block >= 0 && static_cast<std::size_t>(block) < entries_.size());
  return entries_[static_cast<std::size_t>(block)];
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
