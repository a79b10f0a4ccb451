// Block tables over the allocator, the prefix cache and the state slots.
#include "engine/kv/kv_blocks.h"

#include <algorithm>
#include <utility>

#include "base/ceil_div.h"
#include "base/error.h"

namespace imp {

int group_blocks(int block_tokens, int n_tokens, int end, int n_sequences) noexcept {
  const auto blocks_for = [block_tokens](int n) { return ceil_div(n, block_tokens); };
  const int n_shared = end > n_tokens ? n_tokens / block_tokens : blocks_for(n_tokens);
  return n_shared + n_sequences * (blocks_for(end) - n_shared);
}

KvBlocks::KvBlocks(const KvBlocksOptions& options, BlockHash hash)
    : block_tokens_(options.block_tokens),
      prefix_cache_(options.prefix_cache),
      max_cached_(options.max_cached),
      allocator_(options.n_blocks),
      states_(options.n_state_slots, options.n_blocks),
      cache_({.n_blocks = options.n_blocks,
              .block_tokens = options.block_tokens,
              .max_per_tenant = options.max_per_tenant},
             std::move(hash)) {
  unowned_.reserve(static_cast<std::size_t>(options.n_blocks));
}

int KvBlocks::match(BlockTable& table, const BlockKey& scope, std::span<const std::int32_t> tokens, int held) {
  const int n_blocks = static_cast<int>(table.blocks.size());
  if (!prefix_cache_ || held % block_tokens_ != 0 || n_blocks * block_tokens_ != held || table.n_indexed != n_blocks) {
    return 0;
  }
  const auto width = static_cast<std::size_t>(block_tokens_);
  std::int32_t parent = n_blocks == 0 ? PrefixCache::kNone : table.blocks.back();
  if (parent != PrefixCache::kNone && !cache_.contains(parent)) return 0;
  int found = 0;
  for (auto at = static_cast<std::size_t>(held); at + width < tokens.size(); at += width) {
    const std::int32_t block = cache_.find(parent, scope, tokens.subspan(at, width));
    if (block == PrefixCache::kNone) break;
    if (allocator_.owners(block) == 0) cache_.mark_used(block);
    allocator_.retain(block);
    table.blocks.push_back(block);
    ++table.n_indexed;
    found += block_tokens_;
    parent = block;
  }
  if (!states_.is_used() || found == 0) return found;
  int end = held + found;
  while (end > held && states_.snapshot(last_block(table, end)).n_tokens != block_tokens_) end -= block_tokens_;
  truncate(table, end);
  return end - held;
}

int KvBlocks::n_matching(const BlockKey& scope, std::span<const std::int32_t> tokens) {
  BlockTable table;
  const int n = match(table, scope, tokens, 0);
  truncate(table, 0);
  return n;
}

int KvBlocks::missing(const BlockTable& table, int first, int end) const {
  const int n_blocks = static_cast<int>(table.blocks.size());
  int count = std::max(0, blocks_for(end) - n_blocks);
  for (int i = first / block_tokens_; i < std::min(n_blocks, blocks_for(end)); ++i) {
    count += allocator_.owners(table.blocks[static_cast<std::size_t>(i)]) > 1 ? 1 : 0;
  }
  return count;
}

void KvBlocks::prepare(BlockTable& table, int first, int end, std::vector<BlockCopy>& copies) {
  IMP_CHECK(first >= 0 && first <= end);
  const int begin = first / block_tokens_;
  IMP_CHECK(begin <= static_cast<int>(table.blocks.size()));
  table.n_indexed = std::min(table.n_indexed, begin);
  const int n_owned = std::min(static_cast<int>(table.blocks.size()), blocks_for(end));
  for (int i = begin; i < n_owned; ++i) {
    std::int32_t& block = table.blocks[static_cast<std::size_t>(i)];
    if (allocator_.owners(block) > 1) {
      const std::int32_t copy = take();
      copies.push_back({block, copy});
      give(std::exchange(block, copy));
    } else {
      if (cache_.contains(block)) unindex(block);
      states_.drop_after(block, std::max(0, first - i * block_tokens_));
    }
  }
  while (static_cast<int>(table.blocks.size()) < blocks_for(end)) table.blocks.push_back(take());
}

void KvBlocks::commit(BlockTable& table, const CacheScope& scope, std::span<const std::int32_t> tokens) {
  if (!prefix_cache_ || !table.finite) return;
  const auto width = static_cast<std::size_t>(block_tokens_);
  for (auto i = static_cast<std::size_t>(table.n_indexed); (i + 1) * width <= tokens.size(); ++i) {
    const std::int32_t parent = i == 0 ? PrefixCache::kNone : table.blocks[i - 1];
    if (parent != PrefixCache::kNone && !cache_.contains(parent)) return;
    std::int32_t& block = table.blocks[i];
    const std::span<const std::int32_t> ids = tokens.subspan(i * width, width);
    const std::int32_t found = cache_.find(parent, scope.key, ids);
    if (found == PrefixCache::kNone) {
      if (!cache_.insert(block, parent, scope, ids)) return;
    } else if (found != block && allocator_.owners(found) == 0) {
      cache_.replace(found, block);
      states_.move(found, block);
      discard(found);
    } else if (found != block) {
      states_.move(block, found);
      allocator_.retain(found);
      give(std::exchange(block, found));
    }
    ++table.n_indexed;
  }
}

void KvBlocks::share(const BlockTable& from, int n_tokens, BlockTable& to) {
  IMP_CHECK(to.blocks.empty());
  const int n_blocks = blocks_for(n_tokens);
  IMP_CHECK(n_blocks <= static_cast<int>(from.blocks.size()));
  to.blocks.assign(from.blocks.begin(), from.blocks.begin() + n_blocks);
  for (const std::int32_t block : to.blocks) allocator_.retain(block);
  to.finite = from.finite;
  to.n_indexed = std::min(from.n_indexed, n_tokens / block_tokens_);
  if (from.state == kNoSlot || from.state_tokens != n_tokens) return;
  states_.retain(from.state);
  to.state = from.state;
  to.state_tokens = n_tokens;
}

void KvBlocks::truncate(BlockTable& table, int n_tokens) {
  while (static_cast<int>(table.blocks.size()) > blocks_for(n_tokens)) {
    give(table.blocks.back());
    table.blocks.pop_back();
  }
  table.n_indexed = std::min(table.n_indexed, n_tokens / block_tokens_);
  if (n_tokens == 0) table.finite = true;
  if (table.state_tokens > n_tokens) drop_state(table);
}

void KvBlocks::forget(BlockTable& table) {
  for (const std::int32_t block : table.blocks) {
    if (cache_.contains(block)) unindex(block);
  }
  table.n_indexed = 0;
  table.finite = false;
}

int KvBlocks::flush() {
  const int n_cached = allocator_.n_cached();
  while (allocator_.n_cached() > 0) evict();
  return n_cached;
}

std::int32_t KvBlocks::take() {
  if (allocator_.n_free() == 0) evict();
  const std::int32_t block = allocator_.allocate();
  IMP_CHECK(block != BlockAllocator::kNone);
  return block;
}

void KvBlocks::give(std::int32_t block) {
  const bool keep = cache_.contains(block);
  if (!allocator_.release(block, keep)) return;
  if (!keep) return states_.drop_after(block, 0);
  cache_.mark_evictable(block);
  if (allocator_.n_cached() > max_cached_) evict();
}

void KvBlocks::unindex(std::int32_t block) {
  unowned_.clear();
  cache_.remove(block, unowned_);
  for (const std::int32_t freed : unowned_) discard(freed);
}

void KvBlocks::discard(std::int32_t block) {
  allocator_.discard(block);
  states_.drop_after(block, 0);
}

void KvBlocks::evict() {
  const std::int32_t block = cache_.next_evictable();
  IMP_CHECK(block != PrefixCache::kNone && !cache_.has_children(block));
  unindex(block);
}

int KvBlocks::state_position(const BlockTable& table, int held) const {
  if (!states_.is_used()) return held;
  for (int i = blocks_for(held); i-- > 0;) {
    const int n_tokens = states_.snapshot(table.blocks[static_cast<std::size_t>(i)]).n_tokens;
    const int position = i * block_tokens_ + n_tokens;
    if (n_tokens > 0 && position <= held) return position;
  }
  return 0;
}

void KvBlocks::hold_state(BlockTable& table, int position) {
  if (!states_.is_used() || position == 0) return;
  IMP_CHECK(table.state == kNoSlot);
  table.state = states_.use(last_block(table, position));
  table.state_tokens = position;
}

void KvBlocks::keep_snapshot(const BlockTable& table, int n_tokens, std::int32_t slot) {
  keep_snapshot(table, n_tokens, slot, false);
}

void KvBlocks::keep_snapshot(const BlockTable& table, int n_tokens, std::int32_t slot, bool is_idle) {
  const int n_before = (blocks_for(n_tokens) - 1) * block_tokens_;
  states_.keep(last_block(table, n_tokens), {.slot = slot, .n_tokens = n_tokens - n_before}, is_idle);
}

void KvBlocks::advance_state(BlockTable& table, int n_tokens, std::int32_t slot) {
  drop_state(table);
  table.state = slot;
  table.state_tokens = n_tokens;
}

void KvBlocks::park_state(BlockTable& table) {
  if (table.state == kNoSlot) return;
  keep_snapshot(table, table.state_tokens, table.state, true);
  drop_state(table);
}

void KvBlocks::drop_state(BlockTable& table) {
  if (table.state != kNoSlot) states_.release(std::exchange(table.state, kNoSlot));
  table.state_tokens = 0;
}

std::int32_t KvBlocks::last_block(const BlockTable& table, int n_tokens) const {
  const auto i = static_cast<std::size_t>(blocks_for(n_tokens) - 1);
  IMP_CHECK(n_tokens > 0 && i < table.blocks.size());
  return table.blocks[i];
}

}  // namespace imp
