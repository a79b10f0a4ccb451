// The CUDA backend on the emulated device, for tests alone.
#pragma once

#include <memory>

#include "backend/backend.h"
#include "backend/make_backend.h"

namespace imp::cuda_emulated {

std::unique_ptr<Backend> make_cuda_backend(const DeviceOptions& options);

}  // namespace imp::cuda_emulated
