// Bounds the time that wrong guesses may cost.
#pragma once

#include <algorithm>
#include <cmath>

namespace imp {

// The account of a sequence or of the server. The unit is the time of an output without guesses. Every output adds
// kMaxLoss, a right guess adds 1, and the cost of guesses is subtracted. A round is affordable if the account covers
// its whole cost, as if no guess were right. So the time with guesses exceeds 1 + kMaxLoss times the time without them
// by one wrong estimate at most, whatever the texts and the costs are.
class DraftBudget {
 public:
  static constexpr double kMaxLoss = 0.02;
  // The account begins with what this many outputs add.
  static constexpr int kFirstOutputs = 16;

  DraftBudget() noexcept = default;
  // The account holds at most `most`, so that the gain from one text cannot be spent on the next without limit.
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
  int n_first_ = kFirstOutputs;  // further outputs that add nothing: the account began with their part
};

}  // namespace imp
