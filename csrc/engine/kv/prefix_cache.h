// Automatic prefix caching: finds full KV blocks by their tokens and all tokens before them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/kv/block_hash.h"
#include "engine/kv/evictable_blocks.h"
#include "engine/kv/key_table.h"

namespace imp {

// An index over blocks; it owns none. Blocks form chains: each entry names the block before it, or its scope if it is
// the first. A lookup compares token ids, parent and scope: equal hashes alone are never a hit.
//
// The owner of a block owns every block before it. A sequence releases its last block first, and a chain belongs to the
// tenant of its first block. So eviction always takes a chain's tail before its head.
class PrefixCache {
 public:
  static constexpr std::int32_t kNone = -1;

  struct Size {
    int n_blocks = 0;
    int block_tokens = 16;
    int max_per_tenant = 1;  // a tenant with more blocks evicts its own first
  };

  PrefixCache(const Size& size, BlockHash hash);

  // The block that holds `ids` after `parent` (kNone: at the start of `scope`), or kNone.
  std::int32_t find(std::int32_t parent, const BlockKey& scope, std::span<const std::int32_t> ids) const;

  // Adds a live block under its ids. Returns false if other content has the same key; that content stays. `parent` is
  // kNone or an entry; find(parent, scope, ids) is kNone.
  bool insert(std::int32_t block, std::int32_t parent, const CacheScope& scope, std::span<const std::int32_t> ids);

  // A live block outside the index takes the place of an evictable one with equal content, which leaves the index.
  void replace(std::int32_t evictable, std::int32_t block);

  // Removes an entry and every entry after it. Appends those without an owner to `unowned`.
  void remove(std::int32_t block, std::vector<std::int32_t>& unowned);

  bool contains(std::int32_t block) const { return entry(block).indexed; }
  bool has_children(std::int32_t block) const { return entry(block).first_child != kNone; }

  void mark_evictable(std::int32_t block) { evictable_.mark_evictable(block); }
  void mark_used(std::int32_t block) { evictable_.mark_used(block); }
  // The entry to evict next, or kNone. No entry follows it.
  std::int32_t next_evictable() const noexcept { return evictable_.next(); }

 private:
  struct Entry {
    BlockKey key;
    BlockKey scope;
    BlockKey tenant;
    std::int32_t parent = kNone;
    std::int32_t first_child = kNone;
    std::int32_t next_sibling = kNone;
    std::int32_t previous_sibling = kNone;
    bool indexed = false;
  };

  Entry& entry(std::int32_t block);
  const Entry& entry(std::int32_t block) const;
  std::span<std::int32_t> ids(std::int32_t block);
  std::span<const std::int32_t> ids(std::int32_t block) const;
  BlockKey key_of(std::int32_t parent, const BlockKey& scope, std::span<const std::int32_t> ids) const;
  // For the hash table.
  auto stored_key() const {
    return [this](std::int32_t block) -> const BlockKey& { return entry(block).key; };
  }
  void link(std::int32_t block);
  void unlink(std::int32_t block);

  int block_tokens_;
  BlockHash hash_;
  std::vector<Entry> entries_;     // by block
  std::vector<std::int32_t> ids_;  // [n_blocks, block_tokens]
  KeyTable blocks_;                // by key
  EvictableBlocks evictable_;
  std::vector<std::int32_t> stack_;  // scratch of remove()
};

}  // namespace imp
