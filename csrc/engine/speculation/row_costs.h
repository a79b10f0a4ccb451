// The time of a step by its number of rows, learned from the steps that ran.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace imp {

// The expected time of a decode step, in nanoseconds: a running mean for each bucket of row numbers, plus a part that
// is proportional to the tokens in the cache. Before anything is measured, the unit is the time of a step with one row.
// A wrong estimate makes steps slower but changes no token, so the clock need not be accurate.
class RowCosts {
 public:
  // Adds a step of n_rows decode rows and guesses, whose sequences held n_held tokens.
  void add(int n_rows, double n_held, double ns) noexcept;
  // Adds a step with only prefill rows. Estimates for more rows than any decode step had follow from these.
  void add_prompt(int n_rows, double ns) noexcept;

  // Whether any step ran.
  bool is_measured() const noexcept { return is_measured_; }
  // Whether steps of n_rows ran recently, so that their time can serve as a baseline.
  bool is_known(int n_rows) const noexcept;
  // The expected time. Does not decrease as n_rows grows.
  double step_ns(int n_rows, double n_held) const noexcept;
  // The time of a step of n_rows without guesses, for comparison with steps that have some. Where steps of n_rows ran,
  // their own mean limits it, so that a wrong estimate does not hide what guesses cost.
  double baseline_ns(int n_rows, double n_held) const noexcept;
  // An upper bound of the time of such a step. If more rows were measured, it is their time. Otherwise max_row_ns() is
  // added for each row that was not measured.
  double max_ns(int n_rows, double n_held) const noexcept;
  // An upper bound of the time that one more row adds: the time of a step with one row, or down to half of it if
  // prefill rows are cheap.
  double max_row_ns(double n_held) const noexcept;

  static constexpr double kMaxChange = 2;  // a step counts as at most this many times faster or slower than expected

 private:
  // The largest number of rows of each bucket. Up to 16 rows each number has its own bucket, because a kernel may need
  // one more pass over the weights at any of them.
  static constexpr std::array<int, 23> kBuckets = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12,
                                                   13, 14, 15, 16, 20, 24, 28, 32, 40, 48, 64};
  static constexpr double kMaxWeight = 32;      // a mean covers about this many steps
  static constexpr double kFirstWeight = 2;     // weight of the estimate before a bucket's first step
  static constexpr double kMaxOfPromptRow = 3;  // a decode row takes at most this many times as long as a prefill row
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
    double lateness = 1;  // time of its last steps / the mean, which follows a change slowly
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
