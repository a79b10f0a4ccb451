// A mean that follows what is measured.
#pragma once

namespace imp {

class RunningMean {
 public:
  void add(double value) noexcept { mean_ = mean_ == 0 ? value : mean_ + (value - mean_) / 8; }
  // 0: nothing was added.
  double value() const noexcept { return mean_; }

 private:
  double mean_ = 0;
};

}  // namespace imp
