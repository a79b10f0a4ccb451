// The door to the CUDA backend, for make_backend alone.
#pragma once

#include <memory>

#include "backend/backend.h"
#include "backend/make_backend.h"

namespace imp::cuda {

// Throws DeviceError(DEVICE_MISSING) where there is no GPU that imp can use, with the reason.
std::unique_ptr<Backend> make_cuda_backend(const DeviceOptions& options);

}  // namespace imp::cuda
