// Finds the GPU, or the reason why there is none.
#include "backend/cuda/make_cuda_backend.h"

#include <algorithm>
#include <string>
#include <utility>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/device/images.h"
#include "backend/cuda/gemm/kernel_list.h"
#include "base/error.h"

namespace imp::cuda {
namespace {

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

constexpr int kInsufficientDriver = 35;  // cudaErrorInsufficientDriver

// The meaning of the runtime's error here.
std::string why(const Status& status, const DeviceFacts& facts) {
  const std::string code = std::string(status.name) + " (" + std::to_string(status.code) + ")";
  if (status.kind != StatusKind::absent) return "the GPU does not answer: " + code;
  if (facts.driver_version == 0) return "no NVIDIA driver here: " + code;
  if (status.code == kInsufficientDriver && facts.driver_version < facts.runtime_version) {
    return "the NVIDIA driver supports CUDA up to " + version_text(facts.driver_version) + ", expected " +
           version_text(facts.runtime_version) + " or later: " + code;
  }
  return "no GPU that this process may use: " + code;
}

// Why no GPU can be used; empty if one can, and then `facts` describes it.
std::string refusal(DeviceFacts& facts) {
  if (const Status status = find_device(facts); !status.is_ok()) return why(status, facts);
  constexpr int kMinCapability = 80;
  const int capability = facts.caps.compute_capability;
  const std::string has = facts.name + " has compute capability " + std::to_string(capability / 10) + "." +
                          std::to_string(capability % 10) + ", expected ";
  if (capability < kMinCapability) return has + "8.0 or later";
  if (!can_run(facts.images, capability)) {
    return has + "a GPU that this build supports: " + std::string(facts.images) + " (IMP_CUDA_ARCHS, docs/cuda.md)";
  }
  return {};
}

}  // namespace

std::unique_ptr<Backend> make_cuda_backend(const DeviceOptions& options) {
  DeviceFacts facts;
  const std::string reason = refusal(facts);
  if (!reason.empty()) throw DeviceError(Reason::DEVICE_MISSING, "device cuda: " + reason);
  return std::make_unique<CudaBackend>(facts, options);
}

FoundGpu find_gpu() {
  DeviceFacts facts;
  std::string reason = refusal(facts);
  const auto is_validated = [](const GemmKernel& kernel) { return !kernel.any_weight && kernel.validated; };
  return {.name = facts.name,
          .refusal = std::move(reason),
          .has_validated_kernels = std::ranges::any_of(kernel_list(), is_validated)};
}

std::span<const GemmKernel> kernels() noexcept {
  return kernel_list();
}

std::optional<DeviceCaps> known_caps(std::string_view device) noexcept {
  if (device == "h200") {
    return DeviceCaps{.device = "cuda",
                      .compute_capability = 90,
                      .n_processors = 132,
                      .shared_bytes = 227 << 10,
                      .l2_bytes = std::size_t{60} << 20,
                      .wgmma = true};
  }
  if (device == "a100") {
    return DeviceCaps{.device = "cuda",
                      .compute_capability = 80,
                      .n_processors = 108,
                      .shared_bytes = 163 << 10,
                      .l2_bytes = std::size_t{40} << 20};
  }
  return std::nullopt;
}

}  // namespace imp::cuda
