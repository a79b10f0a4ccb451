// Measures how long a scope takes.
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace imp {

// Adds the time until its end to a sum.
class Timing {
 public:
  Timing(const Clock& clock, std::int64_t& sum) : clock_(clock), sum_(sum), begin_(clock()) {}
  ~Timing() { sum_ += clock_() - begin_; }
  Timing(const Timing&) = delete;
  Timing& operator=(const Timing&) = delete;

 private:
  const Clock& clock_;
  std::int64_t& sum_;
  std::int64_t begin_;
};

}  // namespace imp
