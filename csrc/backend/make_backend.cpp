// The devices by name.
#include "backend/make_backend.h"

#include <optional>

#include "backend/cpu/cpu_caps.h"
#include "backend/cpu/gemm/kernel_list.h"
#include "backend/cpu/make_cpu_backend.h"
#include "base/error.h"

#if IMP_CUDA
#include "backend/cuda/make_cuda_backend.h"
#endif
#if IMP_TESTING
#include "backend/cuda/make_emulated_backend.h"
#endif

namespace imp {
namespace {

constexpr const char* kWithoutCuda = "this imp was built without CUDA";

// What there is of one kind of device.
struct DeviceKind {
  std::string_view name;
  const char* missing;  // why it is not in this build, and what to do; null: it is
  std::unique_ptr<Backend> (*make)(const DeviceOptions&);
  std::span<const GemmKernel> (*kernels)() noexcept;
};

std::unique_ptr<Backend> make_cpu(const DeviceOptions& options) {
  return cpu::make_cpu_backend(cpu::cpu_caps(options.isa), options);
}

constexpr DeviceKind kKinds[] = {
    {"cpu", nullptr, make_cpu, cpu::kernel_list},
#if IMP_CUDA
    {"cuda", nullptr, cuda::make_cuda_backend, cuda::kernels},
#else
    {"cuda",
     "this imp was built without CUDA, as there was no nvcc when it was installed or IMP_CUDA was off (docs/cuda.md: "
     "Building)",
     nullptr, nullptr},
#endif
#if IMP_TESTING
    {"cuda_emulated", nullptr, cuda_emulated::make_cuda_backend, cuda_emulated::kernels},
#else
    {"cuda_emulated", "this imp was built without its tests", nullptr, nullptr},
#endif
};

const DeviceKind& find(const std::string& name) {
  for (const DeviceKind& kind : kKinds) {
    if (kind.name != name) continue;
    if (kind.missing != nullptr) {
      throw DeviceError(Reason::DEVICE_MISSING, "device " + name + ": " + kind.missing + ", expected cpu");
    }
    return kind;
  }
  throw InvalidArgument(Reason::FIELD_INVALID, "device: '" + name + "', expected one of: cpu, cuda");
}

std::optional<DeviceCaps> known_gpu([[maybe_unused]] const std::string& name) {
#if IMP_CUDA
  return cuda::known_caps(name);
#elif IMP_TESTING
  return cuda_emulated::known_caps(name);
#else
  return std::nullopt;
#endif
}

}  // namespace

std::unique_ptr<Backend> make_backend(const DeviceOptions& options) {
  return find(options.kind).make(options);
}

GpuAnswer find_gpu() {
#if IMP_CUDA
  return cuda::find_gpu();
#else
  return {.name = "", .refusal = kWithoutCuda};
#endif
}

std::span<const GemmKernel> kernels_of(const std::string& kind) {
  return find(kind).kernels();
}

DeviceCaps gpu_caps(const std::string& name) {
  if (const auto caps = known_gpu(name)) return *caps;
  throw InvalidArgument(Reason::FIELD_INVALID, "gpu: '" + name + "', expected one of: auto, h200, a100");
}

}  // namespace imp
