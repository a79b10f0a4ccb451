// A monotonic clock, in nanoseconds.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

namespace imp {

using Clock = std::function<std::int64_t()>;

inline std::int64_t steady_now() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace imp
