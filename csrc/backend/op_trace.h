// Records when each op ran, in memory allocated before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace imp {

// Times are nanoseconds of the steady clock.
struct OpSpan {
  std::string_view name;  // of an op or a kernel; lives as long as the program
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
};

// Written by the thread of the ops.
class OpTrace {
 public:
  explicit OpTrace(std::size_t capacity) : capacity_(capacity) { spans_.reserve(capacity); }

  void add(const OpSpan& span) noexcept {
    if (spans_.size() < capacity_) {
      spans_.push_back(span);
    } else {
      ++n_dropped_;
    }
  }

  std::vector<OpSpan> take() noexcept { return std::move(spans_); }
  std::int64_t n_dropped() const noexcept { return n_dropped_; }  // beyond the capacity

 private:
  std::size_t capacity_;
  std::vector<OpSpan> spans_;
  std::int64_t n_dropped_ = 0;
};

// Times its scope. Without a trace it does not read the clock.
class OpTimer {
 public:
  OpTimer(OpTrace* trace, std::string_view name) noexcept
      : trace_(trace), name_(name), begin_ns_(trace != nullptr ? steady_now() : 0) {}
  ~OpTimer() {
    if (trace_ != nullptr) trace_->add({name_, begin_ns_, steady_now()});
  }
  OpTimer(const OpTimer&) = delete;
  OpTimer& operator=(const OpTimer&) = delete;

 private:
  OpTrace* trace_;
  std::string_view name_;
  std::int64_t begin_ns_;
};

}  // namespace imp
