// The part of weight loading that all devices share.
#pragma once

#include <atomic>
#include <cstdint>

#include "backend/backend.h"

namespace imp {

// Throws ModelError(MODEL_SHAPE) if rows are not whole blocks or sizes are impossible.
void require_shape(const WeightSource& source);

// Counts the bytes that all threads have read; thread 0 reports them.
class ReadProgress {
 public:
  explicit ReadProgress(const BytesRead& report) : report_(report) {}
  void add(std::int64_t n_bytes, int thread) {
    read_.fetch_add(static_cast<std::uint64_t>(n_bytes), std::memory_order_relaxed);
    if (thread == 0) report();
  }
  void report() {
    if (const std::uint64_t n_bytes = read_.exchange(0, std::memory_order_relaxed); report_ && n_bytes > 0) {
      report_(n_bytes);
    }
  }

 private:
  const BytesRead& report_;
  std::atomic<std::uint64_t> read_{0};
};

}  // namespace imp
