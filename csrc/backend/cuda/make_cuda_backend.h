// The doors to the CUDA backend, for make_backend alone.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "backend/backend.h"
#include "backend/make_backend.h"

namespace imp::cuda {

// Throws DeviceError(DEVICE_MISSING) where there is no GPU that imp can use, with the reason.
std::unique_ptr<Backend> make_cuda_backend(const DeviceOptions& options);
GpuAnswer find_gpu();
// Its matrix kernels in order of preference, and what the device of such a name can do: of H200 and A100 it is known.
std::span<const GemmKernel> kernels() noexcept;
std::optional<DeviceCaps> known_caps(std::string_view device) noexcept;

}  // namespace imp::cuda
