// Reference-counted KV blocks, as in PagedAttention ("Efficient Memory Management for Large Language Model Serving with
// PagedAttention").
#pragma once

#include <cstdint>
#include <vector>

namespace imp {

// Each block is in one of three states. Free: no owner and no content. Live: one or more owners. Cached: no owner, but
// content that a later request may reuse. Blocks are numbered 0 … n_blocks - 1. An inconsistent call, such as the
// release of a block without an owner, is a bug and throws InternalError.
class BlockAllocator {
 public:
  static constexpr std::int32_t kNone = -1;

  explicit BlockAllocator(int n_blocks);

  // Takes a free block for one owner. Returns kNone if no block is free.
  std::int32_t allocate();
  // Adds an owner. A cached block becomes live.
  void retain(std::int32_t block);
  // Removes an owner. Returns true if it was the last one: the block is then cached or free.
  bool release(std::int32_t block, bool keep);
  // Frees a cached block.
  void discard(std::int32_t block);

  int owners(std::int32_t block) const { return owners_[index(block)]; }
  int n_blocks() const noexcept { return static_cast<int>(owners_.size()); }
  int n_free() const noexcept { return static_cast<int>(free_.size()); }
  int n_cached() const noexcept { return n_cached_; }
  int n_live() const noexcept { return n_blocks() - n_free() - n_cached_; }

 private:
  std::size_t index(std::int32_t block) const;

  std::vector<std::int32_t> owners_;
  std::vector<bool> kept_;
  std::vector<std::int32_t> free_;  // a stack: the block freed last is used first, while it may still be in a CPU cache
  int n_cached_ = 0;
};

}  // namespace imp
