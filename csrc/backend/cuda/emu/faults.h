// Failures that tests ask of the emulated device.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cuda/status.h"

namespace imp::cuda::emu {

// Of the whole process; what is not set never fails.
struct Faults {
  Status device;                           // what finding the device comes to
  std::int64_t launches_before_fault = -1;  // then the device is lost; -1: never
  std::size_t total_bytes = std::size_t{8} << 30;  // of device memory
  bool captures_fail = false;
};

void set_faults(const Faults& faults);
// Bytes that allocate() has handed out and that were not released.
std::size_t bytes_in_use() noexcept;

}  // namespace imp::cuda::emu
