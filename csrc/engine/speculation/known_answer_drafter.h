// A drafter whose guesses are right at a given rate, for measurements.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <string_view>
#include <utility>

#include "engine/speculation/drafter.h"

namespace imp {

// Wraps a drafter, whose work and confidence remain. Where the run's outputs are forced, each guess becomes the forced
// output with the given probability, and another token otherwise.
class KnownAnswerDrafter final : public Drafter {
 public:
  KnownAnswerDrafter(std::unique_ptr<Drafter> inner, double right_share, int n_tokens)
      : inner_(std::move(inner)), right_share_(right_share), n_tokens_(n_tokens) {}

  std::string_view name() const noexcept override { return inner_->name(); }
  double cost_of_token() const noexcept override { return inner_->cost_of_token(); }
  double start_cost(const Sequence& sequence) const noexcept override { return inner_->start_cost(sequence); }
  RightShares prior(int confidence) const noexcept override { return inner_->prior(confidence); }
  void read_cache(const KvPool& cache) override { inner_->read_cache(cache); }
  void draft(std::span<DraftRequest> requests) override;
  void observe(const Step& step) override { inner_->observe(step); }
  void copy_blocks(std::span<const BlockCopy> copies) override { inner_->copy_blocks(copies); }
  void forget(const Sequence& sequence) noexcept override { inner_->forget(sequence); }
  void flush() override { inner_->flush(); }

 private:
  std::unique_ptr<Drafter> inner_;
  const double right_share_;
  const int n_tokens_;
  std::mt19937_64 random_;
};

}  // namespace imp
