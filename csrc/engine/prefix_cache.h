// Finds full KV blocks by the tokens they hold and all tokens before them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/block_hash.h"

namespace imp {

// An index over blocks, not their owner. Blocks form chains: each entry names the block before it in its sequence, or
// the scope where it is the first. A hit compares the ids, the parent and the scope: an equal key alone is a miss.
//
// Who holds a block holds every block before it. Blocks that nobody holds are parked, a sequence's last block first,
// so that in order of parking a chain's tail always comes before its head.
class PrefixCache {
 public:
  static constexpr std::int32_t kNone = -1;

  PrefixCache(int n_blocks, int block_tokens, BlockHash hash);

  // The block that holds `ids` after `parent` (kNone: at the start of `scope`), or kNone.
  std::int32_t find(std::int32_t parent, const BlockKey& scope, std::span<const std::int32_t> ids) const;

  // Adds a held block under its ids. False where other content has the same key: that content stays.
  // `parent` is kNone or an entry; find(parent, scope, ids) is kNone.
  bool insert(std::int32_t block, std::int32_t parent, const BlockKey& scope, std::span<const std::int32_t> ids);

  // A held block that is no entry takes the place of a parked one with equal content, which leaves the index.
  void replace(std::int32_t parked, std::int32_t block);

  // Takes an entry and every entry after it out of the index. Those that were parked are appended to `unheld`.
  void remove(std::int32_t block, std::vector<std::int32_t>& unheld);

  bool contains(std::int32_t block) const { return entry(block).indexed; }
  bool has_children(std::int32_t block) const { return entry(block).first_child != kNone; }

  void park(std::int32_t block);
  void unpark(std::int32_t block);
  // The entry parked longest, or kNone. No entry comes after it.
  std::int32_t oldest_parked() const noexcept { return oldest_; }

 private:
  struct Entry {
    BlockKey key;
    BlockKey scope;
    std::int32_t parent = kNone;
    std::int32_t first_child = kNone;
    std::int32_t next_sibling = kNone;
    std::int32_t previous_sibling = kNone;
    std::int32_t older = kNone;  // among the parked
    std::int32_t newer = kNone;
    bool indexed = false;
    bool parked = false;
  };

  Entry& entry(std::int32_t block);
  const Entry& entry(std::int32_t block) const;
  std::span<std::int32_t> ids(std::int32_t block);
  std::span<const std::int32_t> ids(std::int32_t block) const;
  BlockKey key_of(std::int32_t parent, const BlockKey& scope, std::span<const std::int32_t> ids) const;
  std::size_t slot_of(const BlockKey& key) const;
  void take_slot(std::int32_t block);
  void give_slot(std::int32_t block);
  void link(std::int32_t block);
  void unlink(std::int32_t block);

  int block_tokens_;
  BlockHash hash_;
  std::vector<Entry> entries_;       // by block
  std::vector<std::int32_t> ids_;    // [n_blocks, block_tokens]
  std::vector<std::int32_t> slots_;  // open addressing by key, at most half full: blocks, or kNone
  std::vector<std::int32_t> stack_;  // of remove()
  std::int32_t oldest_ = kNone;
  std::int32_t newest_ = kNone;
};

}  // namespace imp
