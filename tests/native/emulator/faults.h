// The properties of the emulated device, and its faults.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cuda/device/status.h"
#include "backend/cuda/device/stream.h"

namespace imp::cuda::emu {

struct Faults {
  Status device;               // the result of the search for a device
  int driver_version = 13000;  // 0: there is none
  int compute_capability = 90;
  bool wgmma = false;                                // whether the device has it
  std::size_t total_bytes = std::size_t{512} << 20;  // of device memory
  std::int64_t launches_before_fault = -1;           // number of launches after which the device is lost; -1: never
  std::int64_t failing_allocation = -1;  // number of the allocation that fails, of both kinds, from 0; -1: none
  bool captures_fail = false;
  bool only_90a = false;                         // the build has code only for sm_90a
  bool plain_tiles = false, late_tiles = false;  // see TensorMap
};

// Parses the environment variable IMP_EMULATED_GPU: words separated by spaces, such as "no_driver",
// "driver_version=12040", "launches_before_fault=100". Aborts with a message if a word is unknown.
Faults faults_of_environment();

// Counts allocations of device memory and of memory shared with it, for all backends of the library that created the
// stream.
struct Pieces {
  std::uint64_t asked = 0;  // since the start of the process
  std::uint64_t held = 0;
};
Pieces pieces(const Stream& stream) noexcept;

}  // namespace imp::cuda::emu
