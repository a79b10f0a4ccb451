// Large memory in huge pages, handed out in 64-byte aligned pieces.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "base/memory_policy.h"

namespace imp {

// Pieces are zero at first and start at 64-byte boundaries. They come from chunks that are mapped on demand and
// follow the memory options; memory becomes resident when it is first written. A piece keeps its chunk alive, so pieces
// may outlive the arena, and a chunk is returned to the system when its last piece is gone. Not thread-safe.
class Arena {
 public:
  static constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;
  static constexpr std::size_t kChunkBytes = std::size_t{64} << 20;

  explicit Arena(std::size_t chunk_bytes = kChunkBytes, MemoryOptions options = {}) noexcept
      : chunk_bytes_(chunk_bytes), options_(std::move(options)) {}

  // Throws ResourceExhausted(NO_MEMORY) with the number of bytes that the system refused, InvalidArgument where it
  // does not interleave as asked.
  std::shared_ptr<std::byte> allocate(std::size_t n_bytes);

 private:
  std::size_t chunk_bytes_;
  MemoryOptions options_;
  std::shared_ptr<std::byte> chunk_;
  std::size_t chunk_size_ = 0;
  std::size_t used_ = 0;
};

}  // namespace imp
