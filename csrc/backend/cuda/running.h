// An op while it runs.
#pragma once

#include <optional>
#include <string_view>

#include "backend/cuda/cuda_backend.h"

namespace imp::cuda {

// Where ops are traced it waits for the device at both ends: work of its own is then timed, and nothing else.
class CudaBackend::Running {
 public:
  Running(Stream& stream, OpTrace* trace, std::string_view name) noexcept : stream_(stream) {
    if (trace == nullptr) return;
    synchronize(stream_);
    timer_.emplace(trace, name);
  }
  ~Running() {
    if (timer_) synchronize(stream_);
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  Stream& stream_;
  std::optional<OpTimer> timer_;  // ends after the wait: members go after the destructor's body
};

}  // namespace imp::cuda
