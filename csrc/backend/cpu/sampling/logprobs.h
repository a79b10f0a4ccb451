// Log-probabilities of raw logits, and the most likely candidates.
#pragma once

#include <cstdint>
#include <span>

#include "backend/cpu/ops/cpu_ops.h"
#include "backend/cpu/sampling/sampling_scratch.h"
#include "backend/sampler.h"

namespace imp::cpu {

// log-softmax of one finite row, through the integer weights at temperature 1: within 1e-6 of exact.
class LogSoftmax {
 public:
  LogSoftmax() = default;  // of no row
  LogSoftmax(const SamplingOps& ops, std::span<const float> logits, float greatest, const SamplingScratch& scratch);
  float operator()(float logit) const;

 private:
  float greatest_ = 0;
  double log_sum_ = 0;
};

// Fills `candidates` with the greatest logits, lower ids first among equals. Leaves entries beyond the row unchanged.
// The scratch holds the row's chunk keys.
void list_candidates(const SamplingOps& ops, std::span<const float> logits, const LogSoftmax& log_softmax,
                     const SamplingScratch& scratch, std::span<Candidate> candidates);

}  // namespace imp::cpu
