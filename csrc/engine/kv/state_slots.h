// Slots of recurrent state: who holds them, and the snapshots of prefixes.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/attention.h"
#include "engine/kv/block_allocator.h"

namespace imp {

// This class does not use the device. A slot is written once and then only read, so several sequences can share it.
// Each slot is in one of three states. Free: no content. Held: by sequences, or by a step that writes it. Snapshot:
// without a holder, but kept for a later run. A held slot can be a snapshot too.
//
// A snapshot belongs to a KV block: it is the state after the block's first n_tokens, and after all blocks before it. A
// block has one snapshot at most, and a slot is the snapshot of one block at most. Slots are numbered 0 … n_slots - 1.
// An inconsistent call is a bug and throws InternalError.
class StateSlots {
 public:
  struct Snapshot {
    std::int32_t slot = kNoSlot;
    int n_tokens = 0;  // of the block, 1 … block_tokens
  };

  StateSlots(int n_slots, int n_blocks);

  // False: the model has no recurrent state.
  bool is_used() const noexcept { return !slots_.empty(); }
  int n_slots() const noexcept { return static_cast<int>(slots_.size()); }
  int n_free() const noexcept { return static_cast<int>(free_.size()); }
  int n_held() const noexcept { return n_held_; }
  int n_snapshots() const noexcept { return n_slots() - n_free() - n_held_; }  // held by nobody
  // Slots that can be taken: free ones, and snapshots, which are evicted.
  int n_available() const noexcept { return n_slots() - n_held_; }

  // Takes a slot for one holder. If none is free, evicts a snapshot: one whose block nobody owns, else one of a
  // sequence that runs, else the state of an idle session; of these the least recently used. Returns kNoSlot if all are
  // held.
  std::int32_t take(const BlockAllocator& blocks);
  // The same for a new snapshot. It does not evict the state of an idle session.
  std::int32_t take_for_snapshot(const BlockAllocator& blocks);
  // Evicts snapshots until n slots are free, but not the state of an idle session. Returns the number of free slots.
  int make_free(const BlockAllocator& blocks, int n);
  void retain(std::int32_t slot);
  // The last holder's release frees the slot, unless it is a snapshot.
  void release(std::int32_t slot);

  // The block's snapshot; kNoSlot if it has none.
  const Snapshot& snapshot(std::int32_t block) const;
  // Makes a held slot the block's snapshot, in place of one after fewer tokens. Does nothing if the block has one after
  // as many tokens or more, or if the slot is the snapshot of another block.
  void keep(std::int32_t block, Snapshot added, bool is_idle = false);
  // Adds a holder to the block's snapshot and returns its slot.
  std::int32_t use(std::int32_t block);
  // The block's tokens after the first n_tokens change. 0: the block is freed.
  void drop_after(std::int32_t block, int n_tokens);
  // Block `to` takes the place of `from`, with equal content.
  void move(std::int32_t from, std::int32_t to);

 private:
  struct Slot {
    int n_holders = 0;
    std::int32_t block = kNone;  // whose snapshot it is
    bool is_idle = false;        // it is the state of an idle session
    std::uint64_t last_use = 0;
  };
  enum class Rank : std::uint8_t { cached, running, idle };  // in the order of eviction
  static constexpr std::int32_t kNone = -1;

  Slot& at(std::int32_t slot);
  Snapshot& of(std::int32_t block);
  Rank rank(const Slot& slot, const BlockAllocator& blocks) const;
  std::int32_t take(const BlockAllocator& blocks, Rank last);
  // Evicts one snapshot of at most this rank. Returns false if there is none.
  bool evict(const BlockAllocator& blocks, Rank last);
  void drop(std::int32_t block);

  std::vector<Slot> slots_;
  std::vector<Snapshot> snapshots_;  // by block
  std::vector<std::int32_t> free_;
  int n_held_ = 0;
  std::uint64_t next_use_ = 0;
};

}  // namespace imp
