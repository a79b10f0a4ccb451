// The table of devices.
#include "backend/make_backend.h"

#include <algorithm>
#include <optional>

#include "backend/cpu/cpu_caps.h"
#include "backend/cpu/gemm/kernel_list.h"
#include "backend/cpu/make_cpu_backend.h"
#include "backend/device_kinds.h"
#include "base/error.h"

#if IMP_CUDA
#include "backend/cuda/make_cuda_backend.h"
#endif

namespace imp {

[[gnu::weak]] std::span<const DeviceKind> extra_device_kinds() noexcept {
  return {};
}

namespace {

constexpr const char* kWithoutCuda = "this imp was built without CUDA";

std::unique_ptr<Backend> make_cpu(const DeviceOptions& options) {
  return cpu::make_cpu_backend(cpu::cpu_caps(options.isa), options);
}

constexpr DeviceKind kKinds[] = {
    {"cpu", nullptr, make_cpu, cpu::kernel_list, nullptr},
#if IMP_CUDA
    {"cuda", nullptr, cuda::make_cuda_backend, cuda::kernels, cuda::known_caps},
#else
    {"cuda",
     "this imp was built without CUDA, as there was no nvcc when it was installed or IMP_CUDA was off (docs/cuda.md: "
     "Building)",
     nullptr, nullptr, nullptr},
#endif
};

const DeviceKind* find(std::span<const DeviceKind> kinds, std::string_view name) {
  const auto found = std::ranges::find(kinds, name, &DeviceKind::name);
  return found == kinds.end() ? nullptr : &*found;
}

const DeviceKind& find(const std::string& name) {
  const DeviceKind* kind = find(kKinds, name);
  if (kind == nullptr) kind = find(extra_device_kinds(), name);
  if (kind == nullptr) {
    throw FieldInvalid("device", "'" + name + "', expected one of: cpu, cuda");
  }
  if (kind->missing != nullptr) {
    throw DeviceError(Reason::DEVICE_MISSING, "device " + name + ": " + kind->missing + ", expected cpu");
  }
  return *kind;
}

std::optional<DeviceCaps> known_gpu(std::string_view name) {
  for (const std::span<const DeviceKind> kinds : {std::span<const DeviceKind>(kKinds), extra_device_kinds()}) {
    for (const DeviceKind& kind : kinds) {
      if (kind.known_caps == nullptr) continue;
      if (const auto caps = kind.known_caps(name)) return caps;
    }
  }
  return std::nullopt;
}

}  // namespace

std::unique_ptr<Backend> make_backend(const DeviceOptions& options) {
  return find(options.kind).make(options);
}

FoundGpu find_gpu() {
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
  throw FieldInvalid("gpu", "'" + name + "', expected one of: auto, h200, a100");
}

}  // namespace imp
