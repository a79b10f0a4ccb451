// The KV blocks of all sequences: ownership, sharing with copy-on-write, and the prefix cache.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/ceil_div.h"
#include "engine/block_allocator.h"
#include "engine/prefix_cache.h"

namespace imp {

// A sequence's blocks in order. The first n_indexed were added to the prefix cache; they may have left it since.
struct BlockTable {
  std::vector<std::int32_t> blocks;
  int n_indexed = 0;
  bool finite = true;  // false: a value in it is not finite; its blocks never enter the prefix cache
};

// A copy that the device makes before any write.
struct BlockCopy {
  std::int32_t from = 0;
  std::int32_t to = 0;
};

// Blocks for n_sequences that share a prompt of n_tokens and hold `end` tokens each. They share the prompt's last block
// only if no sequence writes to it.
int group_blocks(int block_tokens, int n_tokens, int end, int n_sequences) noexcept;

struct KvBlocksOptions {
  int n_blocks = 0;
  int block_tokens = 16;
  bool prefix_cache = true;
  int max_cached = std::numeric_limits<int>::max();      // upper bound of cached blocks without an owner
  int max_per_tenant = std::numeric_limits<int>::max();  // of a tenant's cached blocks while others need blocks
};

// Copy on write: blocks with several owners and entries of the prefix cache are read-only. This class does not use the
// device; it only lists the copies to make. A sequence releases its blocks from last to first.
class KvBlocks {
 public:
  KvBlocks(const KvBlocksOptions& options, BlockHash hash);

  // Blocks that a sequence can take now: free ones, and cached ones, which are evicted.
  int n_available() const noexcept { return allocator_.n_free() + allocator_.n_cached(); }
  int blocks_for(int n_tokens) const noexcept { return ceil_div(n_tokens, block_tokens_); }
  int block_tokens() const noexcept { return block_tokens_; }
  const BlockAllocator& allocator() const noexcept { return allocator_; }

  // Appends the cached blocks that hold a prefix of `tokens`, but leaves at least one token to evaluate. Returns the
  // number of tokens added. The table holds `held` tokens; it finds nothing unless they fill indexed blocks.
  int match(BlockTable& table, const BlockKey& scope, std::span<const std::int32_t> tokens, int held);

  // New blocks needed before positions [first, end) can be written.
  int missing(const BlockTable& table, int first, int end) const;

  // Makes positions [first, end) writable: allocates blocks, replaces shared ones and appends the copies to make. The
  // caller has checked that missing(…) blocks are available.
  void prepare(BlockTable& table, int first, int end, std::vector<BlockCopy>& copies);

  // Records that `tokens` are held and adds the blocks that they fill to the prefix cache. If another block with the
  // same content is in use, this table shares it instead.
  void commit(BlockTable& table, const CacheScope& scope, std::span<const std::int32_t> tokens);

  // Lets the empty table `to` share the blocks of the first n_tokens.
  void share(const BlockTable& from, int n_tokens, BlockTable& to);

  // Releases the blocks beyond the first n_tokens.
  void truncate(BlockTable& table, int n_tokens);

  // Removes the table's blocks, and all entries that follow them, from the prefix cache.
  void forget(BlockTable& table);

  // Frees all cached blocks and returns their number.
  int flush();

 private:
  std::int32_t take();
  void give(std::int32_t block);
  void unindex(std::int32_t block);
  void evict();

  int block_tokens_;
  bool prefix_cache_;
  int max_cached_;
  BlockAllocator allocator_;
  PrefixCache cache_;
  std::vector<std::int32_t> unowned_;  // scratch of unindex()
};

}  // namespace imp
