// An arena: large memory in huge pages, divided into 64-byte aligned allocations.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "base/memory_policy.h"

namespace imp {

// Allocations are zeroed and aligned to 64 bytes. They come from chunks that are mapped on demand and follow the memory
// options; pages become resident when first written. An allocation keeps its chunk alive, so it may outlive the arena.
// A chunk is unmapped with its last allocation. Not thread-safe.
class Arena {
 public:
  static constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;
  static constexpr std::size_t kChunkBytes = std::size_t{64} << 20;

  explicit Arena(std::size_t chunk_bytes = kChunkBytes, MemoryOptions options = {}) noexcept
      : chunk_bytes_(chunk_bytes), options_(std::move(options)) {}

  // Throws ResourceExhausted(NO_MEMORY) with the size that the system refused, and InvalidArgument if the system does
  // not interleave as requested.
  std::shared_ptr<std::byte> allocate(std::size_t n_bytes);

 private:
  std::size_t chunk_bytes_;
  MemoryOptions options_;
  std::shared_ptr<std::byte> chunk_;
  std::size_t chunk_size_ = 0;
  std::size_t used_ = 0;
};

}  // namespace imp
