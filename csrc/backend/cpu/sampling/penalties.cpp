// Penalties touch only the logits of their tokens; masks touch all.
#include "backend/cpu/sampling/penalties.h"

#include <algorithm>
#include <limits>

#include "backend/adjustments.h"

namespace imp::cpu {
namespace {

// Penalties may move extreme logits beyond the range of float; a finite row must stay finite.
float kept_finite(float logit) {
  constexpr float kMax = std::numeric_limits<float>::max();
  return std::clamp(logit, -kMax, kMax);
}

void apply_masks(const SampleRequest& request, std::span<float> logits) {
  constexpr std::size_t kBits = 32;
  for (std::size_t first = 0; first < logits.size(); first += kBits) {
    const std::uint32_t allowed = allowed_of(request, first / kBits);
    if (allowed == ~std::uint32_t{0}) continue;
    const std::size_t n = std::min(kBits, logits.size() - first);
    for (std::size_t bit = 0; bit < n; ++bit) {
      if ((allowed >> bit & 1U) == 0) logits[first + bit] = -std::numeric_limits<float>::infinity();
    }
  }
}

}  // namespace

void adjust_logits(const SampleRequest& request, std::span<float> logits, const SamplingScratch& scratch) {
  const AdjustmentScratch counted = {static_cast<int>(logits.size()), scratch.counts, scratch.matches};
  visit_adjustments(request, counted, [&](AdjustmentStep step, std::int32_t id, float amount) {
    float& logit = logits[static_cast<std::size_t>(id)];
    if (step != AdjustmentStep::repetition) {
      logit = kept_finite(logit + amount);
    } else {
      logit = kept_finite(logit > 0 ? logit / amount : logit * amount);
    }
  });
  if (has_masks(request)) apply_masks(request, logits);
}

}  // namespace imp::cpu
