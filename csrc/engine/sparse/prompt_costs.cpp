// Fits a line through the times of rows.
#include "engine/sparse/prompt_costs.h"

#include <algorithm>

namespace imp {

void PromptCostFit::add(int first, int n, double ns) noexcept {
  if (n < kMinChunk || ns <= 0) return;
  // cost().of(first, n) / n = linear + quadratic · (2 · first + n)
  const double x = 2.0 * first + n;
  const double y = ns / n;
  const double kept = std::max(0.0, 1 - kForgetting * n);
  for (double* sum : {&weight_, &x_, &y_, &xx_, &xy_}) *sum *= kept;
  weight_ += n;
  x_ += n * x;
  y_ += n * y;
  xx_ += n * x * x;
  xy_ += n * x * y;
}

PromptCost PromptCostFit::cost() const noexcept {
  if (weight_ <= 0) return {};
  const double mean_x = x_ / weight_, mean_y = y_ / weight_;
  const double variance = xx_ / weight_ - mean_x * mean_x;
  const double covariance = xy_ / weight_ - mean_x * mean_y;
  // If all chunks have the same depth, the slope cannot be determined.
  const bool has_slope = variance > 1e-6 * mean_x * mean_x;
  // Costs never fall with depth and are never negative, so the slope is clamped.
  const double slope = has_slope ? std::clamp(covariance / variance, 0.0, mean_y / mean_x) : 0;
  return {.linear = mean_y - slope * mean_x, .quadratic = slope};
}

}  // namespace imp
