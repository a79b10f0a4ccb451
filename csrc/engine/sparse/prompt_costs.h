// The measured time of prefill.
#pragma once

namespace imp {

// The time of a prompt, as a quadratic function of its length: products take the same time for each row, and attention
// takes time in proportion to the keys before the row.
struct PromptCost {
  double linear = 0;     // time of a row without attention
  double quadratic = 0;  // time of a row for every two keys before it

  // The time of n rows after `first` others.
  double of(double first, double n) const noexcept {
    return linear * n + quadratic * ((first + n) * (first + n) - first * first);
  }
};

// Fits a PromptCost to chunks of prompts, by least squares with forgetting.
class PromptCostFit {
 public:
  // Adds a chunk of n rows after `first` others, which took ns.
  void add(int first, int n, double ns) noexcept;
  // Whether enough rows were measured.
  bool is_known() const noexcept { return weight_ >= kMinRows; }
  PromptCost cost() const noexcept;

 private:
  static constexpr double kMinRows = 256;
  static constexpr int kMinChunk = 32;  // smaller chunks measure the fixed time of a step rather than that of a row
  static constexpr double kForgetting = 1 / 4096.0;  // for each row
  // Sums over chunks of rows, of keys per row and of nanoseconds per row.
  double weight_ = 0;
  double x_ = 0, y_ = 0, xx_ = 0, xy_ = 0;
};

}  // namespace imp
