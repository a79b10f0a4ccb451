// How much time guesses may lose.
#pragma once

#include <algorithm>
#include <cmath>

namespace imp {

// The account of a sequence, or of the server, in outputs: the time of an output without guesses is 1. Every output
// adds kMaxLoss to it, a right guess 1, and guesses take what they cost. A round is affordable if the account covers
// its whole cost, as if no guess were right. So the time with guesses never exceeds 1 + kMaxLoss times that without
// them by more than a wrong estimate of one round, whatever the texts and the costs are.
class DraftBudget {
 public:
  static constexpr double kMaxLoss = 0.02;
  // It begins with the allowance of this many outputs.
  static constexpr int kFirstOutputs = 16;

  DraftBudget() noexcept = default;
  // It never holds more than `most` outputs, so that what one text gained is not lost on the next.
  explicit DraftBudget(double most) noexcept : most_(most) {}

  double left() const noexcept { return left_; }
  void add(int n_outputs, double gained, double lost) noexcept {
    const int n_known = std::min(n_outputs, n_first_);
    n_first_ -= n_known;
    const double change = kMaxLoss * (n_outputs - n_known) + gained - lost;
    if (std::isfinite(change)) left_ = std::min(left_ + change, most_);
  }

 private:
  double most_ = 32;
  double left_ = kMaxLoss * kFirstOutputs;
  int n_first_ = kFirstOutputs;  // outputs whose allowance is there already
};

}  // namespace imp
