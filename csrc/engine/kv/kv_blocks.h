// What sequences hold: KV blocks, shared with copy-on-write, the prefix cache, and the slots of recurrent state.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/ceil_div.h"
#include "engine/kv/block_allocator.h"
#include "engine/kv/prefix_cache.h"
#include "engine/kv/state_slots.h"

namespace imp {

// A sequence's blocks in order. The first n_indexed were added to the prefix cache; they may have left it since.
struct BlockTable {
  std::vector<std::int32_t> blocks;
  int n_indexed = 0;
  bool finite = true;  // false: a value in it is not finite; its blocks never enter the prefix cache
  // The recurrent state after the first state_tokens tokens. A sequence that runs has it; kNoSlot: all zero.
  std::int32_t state = kNoSlot;
  int state_tokens = 0;
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
  int n_state_slots = 0;                                 // 0: the model has no recurrent state
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
  bool has_prefix_cache() const noexcept { return prefix_cache_; }
  const BlockAllocator& allocator() const noexcept { return allocator_; }
  const StateSlots& states() const noexcept { return states_; }

  // Appends the cached blocks that hold a prefix of `tokens`, but leaves at least one token to evaluate. Returns the
  // number of tokens added. The table holds `held` tokens; it finds nothing unless they fill indexed blocks. If the
  // model has a recurrent state, the prefix ends at a snapshot.
  int match(BlockTable& table, const BlockKey& scope, std::span<const std::int32_t> tokens, int held);

  // How many tokens match() would add to an empty table.
  int n_matching(const BlockKey& scope, std::span<const std::int32_t> tokens);

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

  // The last position up to `held` whose recurrent state is known: `held` itself if the model has none.
  int state_position(const BlockTable& table, int held) const;
  // The table takes the state at a position that state_position() returned.
  void hold_state(BlockTable& table, int position);
  // A slot for a step to write to; kNoSlot if all are held. The caller releases it.
  std::int32_t take_state() { return states_.take(allocator_); }
  std::int32_t take_snapshot() { return states_.take_for_snapshot(allocator_); }
  void release_state(std::int32_t slot) { states_.release(slot); }
  // Evicts snapshots until n slots are free, if it can. Returns the number of free slots.
  int make_states_free(int n) { return states_.make_free(allocator_, n); }
  // Keeps the state after n_tokens as a snapshot of the block that they end in.
  void keep_snapshot(const BlockTable& table, int n_tokens, std::int32_t slot);
  // The table's state is now that after n_tokens, in a slot that take_state() returned.
  void advance_state(BlockTable& table, int n_tokens, std::int32_t slot);
  // The state of a session that becomes idle stays as a snapshot, which later work may evict.
  void park_state(BlockTable& table);

 private:
  std::int32_t take();
  void give(std::int32_t block);
  void unindex(std::int32_t block);
  void discard(std::int32_t block);
  void evict();
  void keep_snapshot(const BlockTable& table, int n_tokens, std::int32_t slot, bool is_idle);
  void drop_state(BlockTable& table);
  std::int32_t last_block(const BlockTable& table, int n_tokens) const;

  int block_tokens_;
  bool prefix_cache_;
  int max_cached_;
  BlockAllocator allocator_;
  StateSlots states_;
  PrefixCache cache_;
  std::vector<std::int32_t> unowned_;  // scratch of unindex()
};

}  // namespace imp
