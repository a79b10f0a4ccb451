// Reference counts of KV blocks.
#include "engine/kv/block_allocator.h"

#include "base/error.h"

namespace imp {

BlockAllocator::BlockAllocator(int n_blocks) {
  IMP_CHECK(n_blocks >= 0);
  owners_.resize(static_cast<std::size_t>(n_blocks), 0);
  kept_.resize(static_cast<std::size_t>(n_blocks), false);
  free_.reserve(static_cast<std::size_t>(n_blocks));
  for (std::int32_t block = n_blocks; block-- > 0;) free_.push_back(block);
}

std::int32_t BlockAllocator::allocate() {
  if (free_.empty()) return kNone;
  const std::int32_t block = free_.back();
  free_.pop_back();
  owners_[index(block)] = 1;
  return block;
}

void BlockAllocator::retain(std::int32_t block) {
  const std::size_t i = index(block);
  IMP_CHECK(owners_[i] > 0 || kept_[i]);
  if (kept_[i]) {
    kept_[i] = false;
    --n_cached_;
  }
  ++owners_[i];
}

bool BlockAllocator::release(std::int32_t block, bool keep) {
  const std::size_t i = index(block);
  IMP_CHECK(owners_[i] > 0);
  if (--owners_[i] > 0) return false;
  if (keep) {
    kept_[i] = true;
    ++n_cached_;
  } else {
    free_.push_back(block);
  }
  return true;
}

void BlockAllocator::discard(std::int32_t block) {
  const std::size_t i = index(block);
  IMP_CHECK(kept_[i]);
  kept_[i] = false;
  --n_cached_;
  free_.push_back(block);
}

std::size_t BlockAllocator::index(std::int32_t block) const {
  IMP_CHECK(block >= 0 && block < n_blocks());
  return static_cast<std::size_t>(block);
}

}  // namespace imp
