// The kinds of device that settings can name.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "backend/backend.h"
#include "backend/make_backend.h"

namespace imp {

struct DeviceKind {
  std::string_view name;
  const char* missing;  // why this build lacks it, and what to do; null if it has it
  std::unique_ptr<Backend> (*make)(const DeviceOptions&);
  std::span<const GemmKernel> (*kernels)() noexcept;
  std::optional<DeviceCaps> (*known_caps)(std::string_view gpu) noexcept;  // null if it is no GPU
};

// Kinds from another library: empty unless a linked library defines this function.
std::span<const DeviceKind> extra_device_kinds() noexcept;

}  // namespace imp
