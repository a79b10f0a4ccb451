// Means of the buckets, and a line through them.
#include "engine/speculation/row_costs.h"

#include <algorithm>
#include <cmath>

namespace imp {

std::size_t RowCosts::bucket_of(int n_rows) noexcept {
  return static_cast<std::size_t>(std::ranges::lower_bound(kBuckets, n_rows) - kBuckets.begin());
}

void RowCosts::add(int n_rows, double n_held, double ns) noexcept {
  Bucket& bucket = buckets_[bucket_of(n_rows)];
  ++bucket.n_steps;
  bucket.last_step = ++n_steps_;
  if (n_rows < 1 || !(ns > 0) || !std::isfinite(ns)) return;
  const double expected = is_measured_ ? step_ns(n_rows, n_held) : ns;
  is_measured_ = true;
  if (bucket.weight == 0) {
    bucket.weight = kFirstWeight;
    bucket.n_rows = n_rows;
    bucket.n_held = n_held;
    // The time interpolated from other numbers of rows may be far too high: it is never above the measured one.
    bucket.ns = std::min(expected, ns);
  }
  // A step that was interrupted must not look like the cost of its rows.
  const double counted = std::min(ns, expected * kMaxChange);
  bucket.weight = std::min(bucket.weight + 1, kMaxWeight);
  bucket.max_rows = std::max(bucket.max_rows, n_rows);
  const double share = 1 / bucket.weight;
  const double held_difference = n_held - bucket.n_held;
  const double ns_difference = counted - bucket.ns;
  held_squares_ = kForgetting * held_squares_ + held_difference * held_difference;
  held_times_ns_ = kForgetting * held_times_ns_ + held_difference * ns_difference;
  bucket.n_rows += share * (n_rows - bucket.n_rows);
  bucket.n_held += share * held_difference;
  bucket.ns += share * ns_difference;
  const double lateness = counted / step_ns(n_rows, n_held);
  bucket.lateness = bucket.weight > kFirstWeight + 1 ? (bucket.lateness + lateness) / 2 : lateness;
}

bool RowCosts::is_known(int n_rows) const noexcept {
  const Bucket& bucket = buckets_[bucket_of(n_rows)];
  return bucket.n_steps >= kFewSteps && n_steps_ - bucket.last_step < kLately;
}

void RowCosts::add_prompt(int n_rows, double ns) noexcept {
  if (n_rows < kBuckets.back() || !(ns > 0) || !std::isfinite(ns)) return;
  const double row_ns = ns / n_rows;
  prompt_row_ns_ = prompt_row_ns_ > 0 ? prompt_row_ns_ + (row_ns - prompt_row_ns_) / 8 : row_ns;
}

// A least-squares fit. More tokens in the cache never make a step faster.
double RowCosts::ns_per_held() const noexcept {
  return held_squares_ > 0 ? std::max(held_times_ns_ / held_squares_, 0.0) : 0;
}

double RowCosts::step_ns(int n_rows, double n_held) const noexcept {
  return base_ns(n_rows) + ns_per_held() * n_held;
}

// The part that grows with the cache, and the times of fewer rows, may be wrong. The mean of the number itself is right
// near the tokens at which it was measured, and the cache takes at most all of its time.
double RowCosts::baseline_ns(int n_rows, double n_held) const noexcept {
  const Bucket& own = buckets_[bucket_of(n_rows)];
  const double expected = step_ns(n_rows, n_held);
  if (own.weight == 0) return expected;
  const double per_held = own.n_held > 0 ? std::min(ns_per_held(), own.ns / own.n_held) : ns_per_held();
  const double measured = own.ns + per_held * (n_held - own.n_held);
  return std::min(expected, std::max(measured, own.ns / kMaxChange));
}

double RowCosts::max_row_ns(double n_held) const noexcept {
  const double one_row_ns = step_ns(1, n_held);
  if (prompt_row_ns_ == 0) return one_row_ns;
  return std::clamp(kMaxOfPromptRow * prompt_row_ns_, one_row_ns / 2, one_row_ns);
}

double RowCosts::max_ns(int n_rows, double n_held) const noexcept {
  int n_measured = 0;
  for (const Bucket& bucket : buckets_) {
    if (bucket.weight == 0) continue;
    n_measured = bucket.max_rows;
    if (n_measured >= n_rows) break;
  }
  // Between two measured numbers of rows, the time may jump at any number. Assume the time of the larger one.
  const bool is_between = n_measured > n_rows && buckets_[bucket_of(n_rows)].weight == 0;
  if (n_measured >= n_rows) {
    const int n_like = is_between ? n_measured : n_rows;
    return step_ns(n_like, n_held) * std::max(1.0, buckets_[bucket_of(n_like)].lateness);
  }
  return step_ns(std::max(n_measured, 1), n_held) + max_row_ns(n_held / n_rows) * (n_rows - std::max(n_measured, 1));
}

// The time without the part for tokens in the cache. Interpolates between the means of the buckets. Below the first one
// a row costs kPriorSlope of a step with one row; above the last one it costs that, or as much as a prefill row if that
// is less.
double RowCosts::base_ns(double n_rows) const noexcept {
  const double per_held = ns_per_held();
  double rows_before = 0, ns_before = 0, one_row_ns = 1;
  for (const Bucket& bucket : buckets_) {
    if (bucket.weight == 0) continue;
    double ns = std::max(bucket.ns - per_held * bucket.n_held, bucket.ns / 16);
    if (rows_before == 0) {
      one_row_ns = ns / (1 + kPriorSlope * (bucket.n_rows - 1));
      if (n_rows <= bucket.n_rows) return one_row_ns * (1 + kPriorSlope * (n_rows - 1));
    } else {
      ns = std::max(ns, ns_before);
      if (n_rows <= bucket.n_rows) {
        return ns_before + (ns - ns_before) * (n_rows - rows_before) / (bucket.n_rows - rows_before);
      }
    }
    rows_before = bucket.n_rows;
    ns_before = ns;
  }
  if (rows_before == 0) return 1 + kPriorSlope * (n_rows - 1);
  const double row_ns =
      prompt_row_ns_ > 0 ? std::min(prompt_row_ns_, kPriorSlope * one_row_ns) : kPriorSlope * one_row_ns;
  return ns_before + row_ns * (n_rows - rows_before);
}

}  // namespace imp
