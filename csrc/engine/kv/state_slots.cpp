// Reference counts of state slots, and the eviction of snapshots.
#include "engine/kv/state_slots.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace imp {

StateSlots::StateSlots(int n_slots, int n_blocks) {
  IMP_CHECK(n_slots >= 0 && n_blocks >= 0);
  if (n_slots == 0) return;
  slots_.resize(static_cast<std::size_t>(n_slots));
  snapshots_.resize(static_cast<std::size_t>(n_blocks));
  free_.reserve(slots_.size());
  for (std::int32_t slot = n_slots; slot-- > 0;) free_.push_back(slot);
}

std::int32_t StateSlots::take(const BlockAllocator& blocks) {
  return take(blocks, Rank::idle);
}

std::int32_t StateSlots::take_for_snapshot(const BlockAllocator& blocks) {
  return take(blocks, Rank::running);
}

int StateSlots::make_free(const BlockAllocator& blocks, int n) {
  while (n_free() < n && evict(blocks, Rank::running)) {
  }
  return n_free();
}

std::int32_t StateSlots::take(const BlockAllocator& blocks, Rank last) {
  if (free_.empty() && !evict(blocks, last)) return kNoSlot;
  const std::int32_t slot = free_.back();
  free_.pop_back();
  at(slot).n_holders = 1;
  ++n_held_;
  return slot;
}

bool StateSlots::evict(const BlockAllocator& blocks, Rank last) {
  const Slot* best = nullptr;
  const auto order = [&](const Slot& slot) { return std::pair(rank(slot, blocks), slot.last_use); };
  for (const Slot& slot : slots_) {
    if (slot.n_holders > 0 || slot.block == kNone || rank(slot, blocks) > last) continue;
    if (best == nullptr || order(slot) < order(*best)) best = &slot;
  }
  if (best == nullptr) return false;
  drop(best->block);
  return true;
}

void StateSlots::retain(std::int32_t slot) {
  Slot& retained = at(slot);
  IMP_CHECK(retained.n_holders > 0 || retained.block != kNone);
  if (retained.n_holders++ == 0) ++n_held_;
}

void StateSlots::release(std::int32_t slot) {
  Slot& released = at(slot);
  IMP_CHECK(released.n_holders > 0);
  if (--released.n_holders > 0) return;
  --n_held_;
  if (released.block == kNone) free_.push_back(slot);
}

const StateSlots::Snapshot& StateSlots::snapshot(std::int32_t block) const {
  IMP_CHECK(block >= 0 && static_cast<std::size_t>(block) < snapshots_.size());
  return snapshots_[static_cast<std::size_t>(block)];
}

void StateSlots::keep(std::int32_t block, Snapshot added, bool is_idle) {
  Slot& slot = at(added.slot);
  IMP_CHECK(slot.n_holders > 0 && added.n_tokens > 0);
  if (slot.block == kNone && of(block).n_tokens < added.n_tokens) {
    drop(block);
    of(block) = added;
    slot.block = block;
  }
  if (slot.block != block) return;
  slot.is_idle = is_idle;
  slot.last_use = ++next_use_;
}

std::int32_t StateSlots::use(std::int32_t block) {
  const std::int32_t slot = snapshot(block).slot;
  retain(slot);
  at(slot).is_idle = false;
  at(slot).last_use = ++next_use_;
  return slot;
}

void StateSlots::drop_after(std::int32_t block, int n_tokens) {
  if (is_used() && of(block).n_tokens > n_tokens) drop(block);
}

void StateSlots::move(std::int32_t from, std::int32_t to) {
  if (!is_used() || of(from).n_tokens <= of(to).n_tokens) return;
  drop(to);
  of(to) = std::exchange(of(from), {});
  at(of(to).slot).block = to;
}

StateSlots::Slot& StateSlots::at(std::int32_t slot) {
  IMP_CHECK(slot >= 0 && slot < n_slots());
  return slots_[static_cast<std::size_t>(slot)];
}

StateSlots::Snapshot& StateSlots::of(std::int32_t block) {
  IMP_CHECK(block >= 0 && static_cast<std::size_t>(block) < snapshots_.size());
  return snapshots_[static_cast<std::size_t>(block)];
}

StateSlots::Rank StateSlots::rank(const Slot& slot, const BlockAllocator& blocks) const {
  if (blocks.owners(slot.block) == 0) return Rank::cached;
  return slot.is_idle ? Rank::idle : Rank::running;
}

void StateSlots::drop(std::int32_t block) {
  const Snapshot dropped = std::exchange(of(block), {});
  if (dropped.slot == kNoSlot) return;
  Slot& slot = at(dropped.slot);
  slot.block = kNone;
  slot.is_idle = false;
  if (slot.n_holders == 0) free_.push_back(dropped.slot);
}

}  // namespace imp
