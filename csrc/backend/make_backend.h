// Makes a backend from the configuration, and describes the capabilities of devices by name.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/gemm_registry.h"
#include "base/memory_policy.h"

namespace imp {

struct DeviceOptions {
  std::string kind = "cpu";  // "cpu" or "cuda"
  std::string isa = "auto";  // CPU: auto, or a value for isa_features(); a feature that the CPU lacks is an error
  int n_threads = 1;
  std::vector<int> cpus;  // CPU of each thread; empty: not pinned
  MemoryOptions memory;   // of weights and KV
  std::vector<GemmPreference> tuning;
  // Where to look for cuBLASLt, in order: files, or names for the dynamic loader. Empty: do not use it.
  std::vector<std::string> cublaslt = {};
};

// The GPU of this machine, if imp can use it.
struct FoundGpu {
  std::string name;
  std::string refusal;  // why it cannot be used; empty: it can
  bool has_validated_kernels = false;
};
FoundGpu find_gpu();

// The matrix kernels of a kind of device, in order of preference. Throws DeviceError(DEVICE_MISSING) if this build
// lacks them.
std::span<const GemmKernel> kernels_of(const std::string& kind);
// The capabilities of a GPU of this name: "h200" or "a100". Throws InvalidArgument for another name.
DeviceCaps gpu_caps(const std::string& name);

// Throws InvalidArgument for an unknown value (with a list of the known ones) and for a tuning that does not fit its
// kernels. Throws DeviceError(DEVICE_MISSING) if the device or the instruction set is not available.
std::unique_ptr<Backend> make_backend(const DeviceOptions& options);

}  // namespace imp
