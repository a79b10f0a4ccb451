// Device memory and pinned host memory, allocated before the first step.
#pragma once

#include <cstddef>
#include <memory>

namespace imp::cuda {

// Divides chunks into allocations aligned to 256 bytes. A chunk is freed with its last allocation. Not thread-safe.
class DeviceArena {
 public:
  static constexpr std::size_t kChunkBytes = std::size_t{64} << 20;

  explicit DeviceArena(std::size_t chunk_bytes = kChunkBytes) noexcept : chunk_bytes_(chunk_bytes) {}

  // The bytes are undefined. Throws ResourceExhausted(NO_MEMORY) with the requested and the free size.
  std::shared_ptr<std::byte> allocate(std::size_t n_bytes);

 private:
  std::size_t chunk_bytes_;
  std::shared_ptr<std::byte> chunk_;
  std::size_t chunk_size_ = 0;
  std::size_t used_ = 0;
};

// An allocation outside the arena. Throws likewise.
std::shared_ptr<std::byte> allocate_on_device(std::size_t n_bytes);
// Pinned host memory, which the device copies from and to asynchronously. Throws likewise.
std::shared_ptr<std::byte> allocate_staging(std::size_t n_bytes);

}  // namespace imp::cuda
