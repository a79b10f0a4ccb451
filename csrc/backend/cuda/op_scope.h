// The scope of a running op.
#pragma once

#include <optional>
#include <string_view>

#include "backend/cuda/cuda_backend.h"

namespace imp::cuda {

// If ops are traced, waits for the device at both ends, so that exactly this op is timed.
class CudaBackend::OpScope {
 public:
  OpScope(Stream& stream, OpTrace* trace, std::string_view name) noexcept : stream_(stream) {
    if (trace == nullptr) return;
    synchronize(stream_);
    timer_.emplace(trace, name);
  }
  ~OpScope() {
    if (timer_) synchronize(stream_);
  }
  OpScope(const OpScope&) = delete;
  OpScope& operator=(const OpScope&) = delete;

 private:
  Stream& stream_;
  std::optional<OpTimer> timer_;  // ends after the wait: members are destroyed after the destructor's body
};

}  // namespace imp::cuda
