// Makes a backend from the user's words; the only place that names the devices.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/gemm_registry.h"
#include "base/memory_policy.h"

namespace imp {

struct DeviceOptions {
  std::string kind = "cpu";  // "cpu", "cuda", or for tests "cuda_emulated"
  std::string isa = "auto";  // CPU: auto, or one of known_isas(); one the CPU lacks is an error
  int n_threads = 1;
  std::vector<int> cpus;  // CPU of each thread; empty: not pinned
  MemoryOptions memory;   // of weights and KV
  std::vector<GemmPreference> tuning;
};

// Throws InvalidArgument for a word it does not know (listing the known) and a tuning that does not fit its kernels,
// DeviceError(DEVICE_MISSING) where the device
// or the instruction set is not here.
std::unique_ptr<Backend> make_backend(const DeviceOptions& options);

}  // namespace imp
