// An arena: chunks of device memory that are divided into allocations.
#include "backend/cuda/device/device_memory.h"

#include <algorithm>
#include <string>

#include "backend/cuda/device/runtime.h"
#include "base/ceil_div.h"
#include "base/error.h"

namespace imp::cuda {
namespace {

constexpr std::size_t kAlignment = 256;

[[noreturn]] void refuse(const char* what, std::size_t n_bytes, const Status& status) {
  std::size_t available = 0;
  static_cast<void>(free_bytes(available));
  if (status.kind != StatusKind::no_memory) {
    throw DeviceError(Reason::DEVICE_FAULT, std::string("device cuda: ") + status.name + " while allocating memory");
  }
  throw ResourceExhausted(
      Reason::NO_MEMORY,
      std::string(what) + ": " + std::to_string(n_bytes) + " bytes, " + std::to_string(available) + " are free",
      {{"needed", std::to_string(n_bytes)}, {"available", std::to_string(available)}});
}

}  // namespace

std::shared_ptr<std::byte> allocate_on_device(std::size_t n_bytes) {
  std::byte* memory = nullptr;
  const Status status = allocate(std::max<std::size_t>(n_bytes, 1), &memory);
  if (!status.is_ok()) refuse("memory of the GPU", n_bytes, status);
  return {memory, release};
}

std::shared_ptr<std::byte> allocate_staging(std::size_t n_bytes) {
  std::byte* memory = nullptr;
  const Status status = allocate_host(std::max<std::size_t>(n_bytes, 1), &memory);
  if (!status.is_ok()) refuse("memory shared with the GPU", n_bytes, status);
  return {memory, release_host};
}

std::shared_ptr<std::byte> DeviceArena::allocate(std::size_t n_bytes) {
  const std::size_t size = round_up(n_bytes, kAlignment);
  if (size > chunk_size_ - used_) {
    // A large allocation gets a chunk of its own, and the open chunk stays open.
    if (size > chunk_bytes_ / 4) return allocate_on_device(size);
    chunk_ = allocate_on_device(chunk_bytes_);
    chunk_size_ = chunk_bytes_;
    used_ = 0;
  }
  std::byte* const piece = chunk_.get() + used_;
  used_ += size;
  return {chunk_, piece};
}

}  // namespace imp::cuda
