// Which KV blocks are free, held, or kept for reuse.
#pragma once

#include <cstdint>
#include <vector>

namespace imp {

// Every block is in one of three states: free; live, with one or more owners; kept, without an owner but with content
// that may be wanted again. free + live + kept = all, always. Blocks are named 0 … n_blocks - 1. A call that would
// break a count (releasing what nobody owns) is our bug and throws InternalError.
class BlockAllocator {
 public:
  static constexpr std::int32_t kNone = -1;

  explicit BlockAllocator(int n_blocks);

  // A free block, now with one owner; kNone where none is free.
  std::int32_t allocate();
  // One owner more; a kept block becomes live.
  void retain(std::int32_t block);
  // One owner less. True where that was the last: the block is then kept, or free.
  bool release(std::int32_t block, bool keep);
  // A kept block becomes free.
  void discard(std::int32_t block);

  int owners(std::int32_t block) const { return owners_[index(block)]; }
  int n_blocks() const noexcept { return static_cast<int>(owners_.size()); }
  int n_free() const noexcept { return static_cast<int>(free_.size()); }
  int n_kept() const noexcept { return n_kept_; }
  int n_live() const noexcept { return n_blocks() - n_free() - n_kept_; }

 private:
  std::size_t index(std::int32_t block) const;

  std::vector<std::int32_t> owners_;
  std::vector<bool> kept_;
  std::vector<std::int32_t> free_;  // a stack; what was freed last is used first, while it may be in a cache
  int n_kept_ = 0;
};

}  // namespace imp
