// The door to the CPU backend, for make_backend alone.
#pragma once

#include <memory>

#include "backend/make_backend.h"

namespace imp::cpu {

// `caps` is what the kernels may use. Throws as the constructors of ThreadPool and GemmRegistry do.
std::unique_ptr<Backend> make_cpu_backend(const DeviceCaps& caps, const DeviceOptions& options);

}  // namespace imp::cpu
