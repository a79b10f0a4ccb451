// Makes a backend from the user's words; the only place that names the devices.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"

namespace imp {

struct DeviceOptions {
  std::string kind = "cpu";      // "cpu" or "cuda"
  std::string isa = "auto";      // CPU: auto, or one of known_isas(); one the CPU lacks is an error
  int n_threads = 1;
  std::vector<int> cpus;         // CPU of each thread; empty: not pinned
};

// Throws InvalidArgument for a word it does not know (listing the known), DeviceError(DEVICE_MISSING) where the device
// or the instruction set is not here.
std::unique_ptr<Backend> make_backend(const DeviceOptions& options);

// What CPU kernels may use under an instruction set's word, `auto` being the best of this machine. Throws as
// make_backend does.
DeviceCaps cpu_caps(std::string_view isa);
// The CPU's kernels in order of preference, whether or not this machine can run them.
std::span<const GemmKernel> cpu_kernels() noexcept;

}  // namespace imp
