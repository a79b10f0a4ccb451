// The time of a step by its number of rows, learned from the steps that ran.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace imp {

// c(R): the expected time of a step that decodes with R rows, in nanoseconds. The time is a running mean for each
// bucket of rows, without a part that grows with the tokens in the cache. Before anything is measured the unit is the
// time of one row. A wrong estimate makes steps slower but changes no token, so the clock need not be accurate.
class RowCosts {
 public:
  // A step of n_rows that decode or verify, whose sequences held n_held tokens.
  void add(int n_rows, double n_held, double ns) noexcept;
  // A step of prompts alone. Until more rows were tried, they are expected to cost as much as these.
  void add_prompt(int n_rows, double ns) noexcept;

  // Whether any step ran.
  bool is_measured() const noexcept { return is_measured_; }
  // Whether steps of n_rows ran lately. What other steps cost is compared with it.
  bool is_known(int n_rows) const noexcept;
  // More rows never cost less.
  double step_ns(int n_rows, double n_held) const noexcept;
  // The time that such a step takes at most, as far as anything is measured: as much as more rows took, and no row
  // takes longer than a step of its own. If rows of prompts are cheap, it takes at most half of such a step.
  double max_ns(int n_rows, double n_held) const noexcept;
  // The longest time that one more row adds to a step with rows of prompts.
  double max_row_ns(double n_held) const noexcept;

 public:
  static constexpr double kMaxChange = 2;  // a step counts as at most so many times faster or slower than expected

 private:
  // The last row number of each bucket. Up to 16 rows each number has its own, because a kernel may need one more pass
  // over the weights at any of them.
  static constexpr std::array<int, 23> kBuckets = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12,
                                                   13, 14, 15, 16, 20, 24, 28, 32, 40, 48, 64};
  static constexpr double kMaxWeight = 32;   // steps that a mean remembers
  static constexpr double kFirstWeight = 2;  // of what was expected of a bucket before its first step
  static constexpr double kMaxOfPromptRow = 3;
  static constexpr double kForgetting = 0.99;
  static constexpr double kPriorSlope = 0.06;  // of a row, in steps of one row
  static constexpr std::uint64_t kFewSteps = 2;
  static constexpr std::uint64_t kLately = 256;  // steps
  struct Bucket {
    std::uint64_t n_steps = 0;
    std::uint64_t last_step = 0;
    double weight = 0;
    int max_rows = 0;   // of its steps
    double n_rows = 0;  // means
    double n_held = 0;
    double ns = 0;
    double lateness = 1;  // of its last steps: how far they were above the mean, which a few steps move slowly
  };

  static std::size_t bucket_of(int n_rows) noexcept;
  double ns_per_held() const noexcept;
  double base_ns(double n_rows) const noexcept;

  std::array<Bucket, kBuckets.size() + 1> buckets_{};
  std::uint64_t n_steps_ = 0;
  bool is_measured_ = false;
  // Sums of squares and products of the differences from the means of the buckets.
  double held_squares_ = 0;
  double held_times_ns_ = 0;
  double prompt_row_ns_ = 0;  // 0: no prompt ran
};

}  // namespace imp
