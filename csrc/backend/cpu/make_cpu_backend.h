// The door to the CPU backend, for make_backend alone.
#pragma once

#include <memory>

#include "backend/backend.h"
#include "base/memory_policy.h"
#include "base/thread_pool.h"

namespace imp::cpu {

// `caps` is what the kernels may use, `isa` its word; `memory` is of weights and KV. Throws as ThreadPool's constructor
// does.
std::unique_ptr<Backend> make_cpu_backend(const DeviceCaps& caps, std::string_view isa,
                                          const ThreadPoolOptions& threads, const MemoryOptions& memory);

}  // namespace imp::cpu
