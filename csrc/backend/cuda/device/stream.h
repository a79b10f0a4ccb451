// The one order in which a backend's device works, and the first thing that went wrong in it.
#pragma once

#include "backend/cuda/device/status.h"

namespace imp::cuda {

class Graph;
class CublasLt;

// Owned by one backend, used by its ops' thread. Launches and copies are void: what fails is kept here, what follows
// a failure is not begun, and the backend throws at the end of the step.
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
  // After a failure that changed nothing.
  void forget_failure() noexcept { first_failure_ = {}; }

  void* handle = nullptr;        // the runtime's own; nullptr: its default stream
  Graph* captured = nullptr;     // while set, launches and copies are put there and not begun
  CublasLt* cublaslt = nullptr;  // the backend's
  int n_processors = 1;          // of the device

 private:
  Status first_failure_;
};

}  // namespace imp::cuda
