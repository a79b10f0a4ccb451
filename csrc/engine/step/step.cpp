// Memory of a step.
#include "engine/step/step.h"

namespace imp {

void Step::reserve(std::size_t max_running, std::size_t max_draws, std::size_t max_saves) {
  saves.reserve(max_saves);
  rows.reserve(max_running);
  draws.reserve(max_draws);
  requests.reserve(max_draws);
  results.reserve(max_draws);
}

void Step::clear() noexcept {
  rows.clear();
  saves.clear();
  draws.clear();
  scores.clear();
  requests.clear();
  results.clear();
  is_in_flight = false;
  forward = sample = {};
}

}  // namespace imp
