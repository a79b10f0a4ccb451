// The interface of drafters, which propose tokens for speculative decoding.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "engine/speculation/acceptance.h"
#include "engine/speculation/guess.h"

namespace imp {

struct BlockCopy;
struct Sequence;
struct Step;

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
  // What it has to evaluate before it can guess for the sequence, in the same unit.
  virtual double start_cost(const Sequence& /*sequence*/) const noexcept { return 0; }
  // What guesses of a confidence class are worth before any is verified.
  virtual RightShares prior(int /*confidence*/) const noexcept { return {}; }
  // Allocates nothing once the lists of guesses have their capacity.
  virtual void draft(std::span<DraftRequest> requests) = 0;
  // A step is complete: its guesses are matched, and each sequence holds what is kept. The forward pass still has the
  // step's activations, unless a device that runs ahead has begun the next step. In rows of a sequence that has ended,
  // `planned.sequence` is null. Allocates nothing.
  virtual void observe(const Step& /*step*/) {}
  // Blocks of the model's cache are about to be copied, in order.
  virtual void copy_blocks(std::span<const BlockCopy> /*copies*/) {}
  // The sequence ends: what the drafter keeps of it is freed.
  virtual void forget(const Sequence& /*sequence*/) noexcept {}
  // Frees what is kept of sequences that have ended.
  virtual void flush() {}
};

// In the order in which they are asked.
using Drafters = std::vector<std::unique_ptr<Drafter>>;

}  // namespace imp
