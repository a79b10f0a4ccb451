// The result of a runtime call as a value: the CUDA backend throws only at the end of a step.
#pragma once

#include <cstdint>

namespace imp::cuda {

enum class StatusKind : std::uint8_t {
  ok,
  absent,     // no device, or no driver that serves this runtime
  no_memory,  // nothing has changed
  fault,      // the device can no longer be trusted
};

struct Status {
  StatusKind kind = StatusKind::ok;
  int code = 0;             // the runtime's own
  const char* name = "ok";  // the runtime's name of it, static

  bool is_ok() const noexcept { return kind == StatusKind::ok; }
};

}  // namespace imp::cuda
