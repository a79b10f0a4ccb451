// Makes the CUDA backend. Only make_backend includes it.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "backend/backend.h"
#include "backend/make_backend.h"

namespace imp::cuda {

// Throws DeviceError(DEVICE_MISSING), with the reason, if no GPU can be used.
std::unique_ptr<Backend> make_cuda_backend(const DeviceOptions& options);
FoundGpu find_gpu();
// Its matrix kernels in order of preference, and the capabilities of a device by name: known for H200 and A100.
std::span<const GemmKernel> kernels() noexcept;
std::optional<DeviceCaps> known_caps(std::string_view device) noexcept;

}  // namespace imp::cuda
