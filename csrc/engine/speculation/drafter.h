// The interface of drafters, which propose tokens for speculative decoding.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "engine/data/guess.h"
#include "engine/sequence/acceptance.h"

namespace imp {

class KvPool;
struct BlockCopy;
struct Sequence;
struct Step;

// Asks for the tokens that may follow the sequence's pending token.
struct DraftRequest {
  Sequence* sequence = nullptr;
  int n_wanted = 0;
  std::vector<Guess> guesses;  // output: at most n_wanted, perhaps none
};

// A wrong guess costs time. It never changes an output, because the model verifies every guess.
class Drafter {
 public:
  virtual ~Drafter() = default;
  virtual std::string_view name() const noexcept = 0;
  // The time to make a guess. The unit is a step of the model with one row. It decides how many guesses are requested.
  virtual double cost_of_token() const noexcept { return 0; }
  // The time to evaluate what the drafter lacks before its first guess for the sequence, in the same unit.
  virtual double start_cost(const Sequence& /*sequence*/) const noexcept { return 0; }
  // The expected acceptance rates of a confidence class before any guess is verified.
  virtual RightShares prior(int /*confidence*/) const noexcept { return {}; }
  // The model's cache, which outlives the drafter's calls. Called once, before all else.
  virtual void read_cache(const KvPool& /*cache*/) {}
  // Allocates nothing once the lists of guesses have their capacity.
  virtual void draft(std::span<DraftRequest> requests) = 0;
  // A step is complete: its guesses are verified, and each sequence holds the tokens that it keeps. The forward pass
  // still has the step's activations, unless a device that runs ahead has begun the next step. If a sequence has ended,
  // `planned.sequence` of its rows is null. Allocates nothing.
  virtual void observe(const Step& /*step*/) {}
  // Blocks of the model's cache are about to be copied, in order.
  virtual void copy_blocks(std::span<const BlockCopy> /*copies*/) {}
  // The sequence ends, or gets media: what the drafter keeps of it is freed.
  virtual void forget(const Sequence& /*sequence*/) noexcept {}
  // Frees what is kept of sequences that have ended.
  virtual void flush() {}
};

// In the order in which they are asked.
using Drafters = std::vector<std::unique_ptr<Drafter>>;

}  // namespace imp
