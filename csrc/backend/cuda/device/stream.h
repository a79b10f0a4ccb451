// The order of a backend's work on the device, and the first error in it.
#pragma once

#include "backend/cuda/device/status.h"

namespace imp::cuda {

class Graph;
class CublasLt;

// Owned by one backend, used by the thread of its ops. Launches and copies return nothing: the stream keeps the first
// error, starts no work after it, and the backend throws at the end of the step.
class Stream {
 public:
  Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  bool is_ok() const noexcept { return first_failure_.is_ok(); }
  void keep(const Status& status) noexcept {
    if (is_ok()) first_failure_ = status;
  }
  const Status& first_failure() const noexcept { return first_failure_; }
  // Clears an error that changed nothing.
  void forget_failure() noexcept { first_failure_ = {}; }

  void* handle = nullptr;        // the runtime's stream; nullptr: its default stream
  Graph* captured = nullptr;     // if set, launches and copies are captured there and not run
  CublasLt* cublaslt = nullptr;  // the backend's
  int n_processors = 1;          // of the device

 private:
  Status first_failure_;
};

}  // namespace imp::cuda
