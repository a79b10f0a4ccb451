// Replaces guesses of known outputs.
#include "engine/speculation/known_answer_drafter.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "engine/sequence/sequence.h"

namespace imp {

void KnownAnswerDrafter::draft(std::span<DraftRequest> requests) {
  inner_->draft(requests);
  std::uniform_real_distribution<double> uniform;  // 0 to 1, without 1
  for (DraftRequest& request : requests) {
    const Run& run = *request.sequence->run;
    const std::size_t first = std::min(run.forced.size(), static_cast<std::size_t>(run.n_outputs));
    const std::span known = std::span(run.forced).subspan(first);
    const std::size_t n = std::min(request.guesses.size(), known.size());
    for (std::size_t i = 0; i < n; ++i) {
      const bool is_right = uniform(random_) < right_share_;
      request.guesses[i].token = is_right ? known[i] : (known[i] + 1) % n_tokens_;
    }
  }
}

}  // namespace imp
