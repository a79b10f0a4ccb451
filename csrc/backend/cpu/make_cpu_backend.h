// Makes the CPU backend. Only make_backend includes it.
#pragma once

#include <memory>

#include "backend/make_backend.h"

namespace imp::cpu {

// `caps`: the features that kernels may use. Throws as the constructors of ThreadPool and GemmRegistry do.
std::unique_ptr<Backend> make_cpu_backend(const DeviceCaps& caps, const DeviceOptions& options);

}  // namespace imp::cpu
