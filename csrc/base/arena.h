// Large memory in huge pages, handed out in 64-byte aligned pieces.
#pragma once

#include <cstddef>
#include <memory>

namespace imp {

// Pieces are zero at first and start at 64-byte boundaries. They come from chunks that are mapped on demand and
// advised to be huge pages; memory becomes resident when it is first written. A piece keeps its chunk alive, so pieces
// may outlive the arena, and a chunk is returned to the system when its last piece is gone. Not thread-safe.
class Arena {
 public:
  static constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

  explicit Arena(std::size_t chunk_bytes = std::size_t{64} << 20) noexcept : chunk_bytes_(chunk_bytes) {}

  // Throws ResourceExhausted(NO_MEMORY) with the number of bytes that the system refused.
  std::shared_ptr<std::byte> allocate(std::size_t n_bytes);

 private:
  std::size_t chunk_bytes_;
  std::shared_ptr<std::byte> chunk_;
  std::size_t chunk_size_ = 0;
  std::size_t used_ = 0;
};

}  // namespace imp
