// Keeps each sequence's index up to date and asks it.
#include "engine/speculation/ngram_drafter.h"

#include "engine/sequence/sequence.h"

namespace imp {

// Measured on answers that edit, quote or continue their prompts.
RightShares NgramDrafter::prior(int confidence) const noexcept {
  if (confidence >= NgramIndex::kEditedCopy) return {.first = 0.33, .later = 0.75};
  switch (confidence) {
    case 0:
    case 1:
      return {.first = 0.44, .later = 0.77};
    case 2:
    case 3:
      return {.first = 0.65, .later = 0.83};
    case 4:
      return {.first = 0.8, .later = 0.9};
    default:
      return {.first = 0.99, .later = 0.99};
  }
}

void NgramDrafter::draft(std::span<DraftRequest> requests) {
  for (DraftRequest& request : requests) {
    Sequence& sequence = *request.sequence;
    sequence.ngrams.extend(sequence.history());
    sequence.ngrams.propose(sequence.history(), request.n_wanted, request.guesses);
  }
}

}  // namespace imp
