// The doors to the CUDA backend on the emulated device, for tests alone.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "backend/backend.h"
#include "backend/make_backend.h"

namespace imp::cuda_emulated {

std::unique_ptr<Backend> make_cuda_backend(const DeviceOptions& options);
std::span<const GemmKernel> kernels() noexcept;
std::optional<DeviceCaps> known_caps(std::string_view device) noexcept;

}  // namespace imp::cuda_emulated
