// What prompts cost: measured, as they are served.
#pragma once

namespace imp {

// The time of a prompt: each row takes as long as its products and as the keys that it attends to.
struct PromptCost {
  double linear = 0;     // of a row
  double quadratic = 0;  // of a row for each two keys before it

  // Of n rows after `first` others.
  double of(double first, double n) const noexcept {
    return linear * n + quadratic * ((first + n) * (first + n) - first * first);
  }
};

// Fits a PromptCost to chunks of prompts, by least squares with forgetting.
class PromptCostFit {
 public:
  // A chunk of n rows after `first` others took so long.
  void add(int first, int n, double ns) noexcept;
  // Whether chunks were measured that together had a prompt's length.
  bool is_known() const noexcept { return weight_ >= kMinRows; }
  PromptCost cost() const noexcept;

 private:
  static constexpr double kMinRows = 256;
  static constexpr int kMinChunk = 32;               // smaller ones say more of a step than of a row
  static constexpr double kForgetting = 1 / 4096.0;  // for each row
  // Sums over chunks of rows, of keys per row and of nanoseconds per row.
  double weight_ = 0;
  double x_ = 0, y_ = 0, xx_ = 0, xy_ = 0;
};

}  // namespace imp
