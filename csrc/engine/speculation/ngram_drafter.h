// Guesses from the sequence's own text.
#pragma once

#include "engine/speculation/drafter.h"

namespace imp {

// Each sequence has an index of its own: requests learn nothing of each other, not even from times.
class NgramDrafter final : public Drafter {
 public:
  static constexpr std::string_view kName = "ngram";
  std::string_view name() const noexcept override { return kName; }
  RightShares prior(int confidence) const noexcept override;
  void draft(std::span<DraftRequest> requests) override;
};

}  // namespace imp
