// The interface of what guesses tokens ahead.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "engine/speculation/guess.h"

namespace imp {

struct Sequence;

// Asks for the tokens that may follow the sequence's pending token.
struct DraftRequest {
  Sequence* sequence = nullptr;
  int n_wanted = 0;
  std::vector<Guess> guesses;  // the answer: at most n_wanted, none if the drafter has no idea
};

// Guesses cost time if they are wrong. They never change a token: the model verifies each one.
class Drafter {
 public:
  virtual ~Drafter() = default;
  virtual std::string_view name() const noexcept = 0;
  // The time that a guess takes, in rows of the model: 1 is as long as a step of the model with one row. It decides how
  // many guesses are asked for.
  virtual double cost_of_token() const noexcept { return 0; }
  // Allocates nothing once the lists of guesses have their capacity.
  virtual void draft(std::span<DraftRequest> requests) = 0;
};

// In the order in which they are asked.
using Drafters = std::vector<std::unique_ptr<Drafter>>;

}  // namespace imp
