// Finds full KV blocks by the tokens they hold and all tokens before them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/block_hash.h"
#include "engine/key_table.h"
#include "engine/parked_blocks.h"

namespace imp {

// An index over blocks, not their owner. Blocks form chains: each entry names the block before it in its sequence, or
// the scope where it is the first. A hit compares the ids, the parent and the scope: an equal key alone is a miss.
//
// Who holds a block holds every block before it. Blocks that nobody holds are parked, a sequence's last block first,
// and a chain has one tenant: that of its first block. So in the order in which parked blocks are given up, a chain's
// tail always comes before its head.
class PrefixCache {
 public:
  static constexpr std::int32_t kNone = -1;

  struct Size {
    int n_blocks = 0;
    int block_tokens = 16;
    int max_of_one = 1;  // blocks of a tenant, beyond which it gives up its own
  };

  PrefixCache(const Size& size, BlockHash hash);

  // The block that holds `ids` after `parent` (kNone: at the start of `scope`), or kNone.
  std::int32_t find(std::int32_t parent, const BlockKey& scope, std::span<const std::int32_t> ids) const;

  // Adds a held block under its ids. False where other content has the same key: that content stays.
  // `parent` is kNone or an entry; find(parent, scope, ids) is kNone.
  bool insert(std::int32_t block, std::int32_t parent, const CacheScope& scope, std::span<const std::int32_t> ids);

  // A held block that is no entry takes the place of a parked one with equal content, which leaves the index.
  void replace(std::int32_t parked, std::int32_t block);

  // Takes an entry and every entry after it out of the index. Those that were parked are appended to `unheld`.
  void remove(std::int32_t block, std::vector<std::int32_t>& unheld);

  bool contains(std::int32_t block) const { return entry(block).indexed; }
  bool has_children(std::int32_t block) const { return entry(block).first_child != kNone; }

  void park(std::int32_t block) { parked_.park(block); }
  void unpark(std::int32_t block) { parked_.unpark(block); }
  // The parked entry to give up first, or kNone. No entry comes after it.
  std::int32_t next_parked() const noexcept { return parked_.next(); }

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
  // For the table of keys.
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
  ParkedBlocks parked_;
  std::vector<std::int32_t> stack_;  // of remove()
};

}  // namespace imp
