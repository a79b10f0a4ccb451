// Acceptance rates from counts that are halved from time to time, with a prior.
#include "engine/sequence/acceptance.h"

#include <algorithm>

namespace imp {
namespace {

std::size_t index_of(int confidence) {
  return static_cast<std::size_t>(std::clamp(confidence, 0, Acceptance::kClasses - 1));
}

}  // namespace

void Acceptance::add(int confidence, bool is_first, bool is_right) noexcept {
  Count& count = counts_[index_of(confidence)][is_first ? 0 : 1];
  ++count.n_tried;
  if (is_right) ++count.n_right;
  if (count.n_tried < (is_first ? kMaxFirst : kMaxLater)) return;
  count.n_tried /= 2;
  count.n_right /= 2;
}

double Acceptance::share(int confidence, bool is_first, double prior) const noexcept {
  const Count& count = counts_[index_of(confidence)][is_first ? 0 : 1];
  return (count.n_right + kPriorWeight * prior) / (count.n_tried + kPriorWeight);
}

}  // namespace imp
