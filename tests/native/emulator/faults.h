// What the emulated device is, and what it fails at.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cuda/device/status.h"
#include "backend/cuda/device/stream.h"

namespace imp::cuda::emu {

struct Faults {
  Status device;               // what finding the device comes to
  int driver_version = 13000;  // 0: there is none
  int compute_capability = 90;
  bool wgmma = false;                                // whether the device says that it has it
  std::size_t total_bytes = std::size_t{512} << 20;  // of device memory
  std::int64_t launches_before_fault = -1;           // then the device is lost; -1: never
  std::int64_t failing_allocation = -1;              // of either kind, the first is 0; -1: none
  bool captures_fail = false;
  bool only_90a = false;                         // the build has code for nothing else
  bool plain_tiles = false, late_tiles = false;  // see TensorMap
};

// As the environment variable IMP_EMULATED_GPU says: words with a space between them, such as "no_driver",
// "driver_version=12040", "launches_before_fault=100". Aborts with a message for another word: it is for tests alone.
Faults faults_of_environment();

// Pieces of the device's memory and of memory shared with it, of all backends of the library that made the stream.
struct Pieces {
  std::uint64_t asked = 0;  // since the process began
  std::uint64_t held = 0;
};
Pieces pieces(const Stream& stream) noexcept;

}  // namespace imp::cuda::emu
