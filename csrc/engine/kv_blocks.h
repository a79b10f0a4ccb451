// The KV blocks of all sequences: who owns which, what may be shared, what is kept for reuse.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "engine/block_allocator.h"
#include "engine/prefix_cache.h"

namespace imp {

// A sequence's blocks in order. The first n_indexed are entries of the prefix cache, or were.
struct BlockTable {
  std::vector<std::int32_t> blocks;
  int n_indexed = 0;
  bool sound = true;  // false: something in it is not finite; no block of it is to be found again
};

// A copy to be made on the device before anything is written.
struct BlockCopy {
  std::int32_t from = 0;
  std::int32_t to = 0;
};

// Blocks for n_sequences that share a prompt of n_tokens and are to hold `end` tokens each: the prompt's last block is
// shared only if nobody writes to it.
int group_blocks(int block_tokens, int n_tokens, int end, int n_sequences) noexcept;

struct KvBlocksOptions {
  int n_blocks = 0;
  int block_tokens = 16;
  bool prefix_cache = true;
  int max_kept = std::numeric_limits<int>::max();    // blocks kept while nobody holds them
  int max_of_one = std::numeric_limits<int>::max();  // a tenant's in the cache, while others want the room
};

// Blocks with several owners, and entries of the prefix cache, are read-only: a write copies first. Nothing here
// touches the device; it only says what must be copied. A sequence gives its last block back first.
class KvBlocks {
 public:
  KvBlocks(const KvBlocksOptions& options, BlockHash hash);

  // Blocks that a sequence could take now: free ones, and kept ones, which are given up.
  int n_available() const noexcept { return allocator_.n_free() + allocator_.n_kept(); }
  int blocks_for(int n_tokens) const noexcept { return (n_tokens + block_tokens_ - 1) / block_tokens_; }
  int block_tokens() const noexcept { return block_tokens_; }
  const BlockAllocator& allocator() const noexcept { return allocator_; }

  // Appends the blocks that hold a prefix of `tokens` already, leaving at least one token, and returns the number of
  // tokens that they add. The table holds `held` tokens; nothing is found unless they fill indexed blocks.
  int match(BlockTable& table, const BlockKey& scope, std::span<const std::int32_t> tokens, int held);

  // Blocks to be taken before positions [first, end) can be written.
  int missing(const BlockTable& table, int first, int end) const;

  // Makes positions [first, end) writable: takes blocks, and replaces those that are shared, telling what to copy.
  // missing(…) blocks are available.
  void prepare(BlockTable& table, int first, int end, std::vector<BlockCopy>& copies);

  // Tells that `tokens` are held: blocks they fill become findable. A block whose content is there already, held by
  // others, is exchanged for theirs.
  void commit(BlockTable& table, const CacheScope& scope, std::span<const std::int32_t> tokens);

  // Lets `to`, which is empty, share the blocks of the first n_tokens.
  void share(const BlockTable& from, int n_tokens, BlockTable& to);

  // Gives back the blocks beyond the first n_tokens.
  void truncate(BlockTable& table, int n_tokens);

  // Takes the table's blocks, and what was computed on top of them, out of the prefix cache for good.
  void forget(BlockTable& table);

  // Frees what is kept; returns how many blocks that were.
  int flush();

 private:
  std::int32_t take();
  void give(std::int32_t block);
  void unindex(std::int32_t block);
  void evict();

  int block_tokens_;
  bool prefix_cache_;
  int max_kept_;
  BlockAllocator allocator_;
  PrefixCache cache_;
  std::vector<std::int32_t> unheld_;  // of unindex()
};

}  // namespace imp
