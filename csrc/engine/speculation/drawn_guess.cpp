// Classes of draws, and draws that end a run.
#include "engine/speculation/drawn_guess.h"

#include <algorithm>
#include <cmath>

namespace imp {

std::uint8_t confidence_of(float logprob) noexcept {
  const float probability = std::exp(logprob);
  if (probability >= 0.9F) return 3;
  if (probability >= 0.6F) return 2;
  return probability >= 0.3F ? 1 : 0;
}

bool ends_run(const Run& run, std::int32_t token, int n) noexcept {
  if (run.n_outputs + n < run.limits.min_outputs) return false;
  return std::ranges::binary_search(run.limits.stop_tokens, token) ||
         (run.limits.ends_at_eos && std::ranges::binary_search(run.limits.eos_tokens, token));
}

}  // namespace imp
