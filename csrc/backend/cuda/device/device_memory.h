// Memory on the device, and memory of the host that the device reads: owned, and asked for before the first step.
#pragma once

#include <cstddef>
#include <memory>

namespace imp::cuda {

// Hands out pieces that start at multiples of 256 bytes, from chunks that are freed when their last piece is gone. Not
// thread-safe.
class DeviceArena {
 public:
  static constexpr std::size_t kChunkBytes = std::size_t{64} << 20;

  explicit DeviceArena(std::size_t chunk_bytes = kChunkBytes) noexcept : chunk_bytes_(chunk_bytes) {}

  // Its bytes hold anything. Throws ResourceExhausted(NO_MEMORY) with what was asked for and what is free.
  std::shared_ptr<std::byte> allocate(std::size_t n_bytes);

 private:
  std::size_t chunk_bytes_;
  std::shared_ptr<std::byte> chunk_;
  std::size_t chunk_size_ = 0;
  std::size_t used_ = 0;
};

// A piece of its own. Throws likewise.
std::shared_ptr<std::byte> allocate_on_device(std::size_t n_bytes);
// Host memory that copies to and from the device run over by themselves. Throws likewise.
std::shared_ptr<std::byte> allocate_staging(std::size_t n_bytes);

}  // namespace imp::cuda
