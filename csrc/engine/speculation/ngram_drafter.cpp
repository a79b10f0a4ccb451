// Keeps each sequence's index up to date and asks it.
#include "engine/speculation/ngram_drafter.h"

#include "engine/sequence.h"

namespace imp {

void NgramDrafter::draft(std::span<DraftRequest> requests) {
  for (DraftRequest& request : requests) {
    Sequence& sequence = *request.sequence;
    sequence.ngrams.extend(sequence.tokens);
    sequence.ngrams.propose(sequence.tokens, request.n_wanted, request.guesses);
  }
}

}  // namespace imp
