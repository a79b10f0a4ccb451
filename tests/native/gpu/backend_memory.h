// Access to a GPU's memory for tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/backend.h"

// For the real device and for the emulated one. The functions of a backend wait for all previous ops.
#define IMP_DECLARE_BACKEND_MEMORY(room)                                                \
  namespace imp::room {                                                                 \
  class Stream;                                                                         \
  bool is_of_this_device(const Backend& backend) noexcept;                              \
  Stream& stream_of(Backend& backend);                                                  \
  void fill_scratch(Backend& backend, std::uint8_t value);                              \
  void write_device(Backend& backend, void* to, const void* from, std::size_t n_bytes); \
  void read_device(Backend& backend, void* to, const void* from, std::size_t n_bytes);  \
  /* Empty where it is not this device's. */                                            \
  std::span<std::byte> memory_of(const KvPool& pool) noexcept;                          \
  }
IMP_DECLARE_BACKEND_MEMORY(cuda)
IMP_DECLARE_BACKEND_MEMORY(cuda_emulated)
#undef IMP_DECLARE_BACKEND_MEMORY
