// Collects the exception of a parallel loop, whose body must not throw on worker threads.
#pragma once

#include <atomic>
#include <exception>
#include <mutex>

namespace imp {

// Keeps the first exception, and skips all later tasks.
class FirstError {
 public:
  template <class Body>
  void guard(const Body& body) noexcept {
    if (has_failed_.load(std::memory_order_relaxed)) return;
    try {
      body();
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!error_) error_ = std::current_exception();
      has_failed_.store(true, std::memory_order_relaxed);
    }
  }
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::atomic<bool> has_failed_{false};
  std::mutex mutex_;
  std::exception_ptr error_;
};

}  // namespace imp
