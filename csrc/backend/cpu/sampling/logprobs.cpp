// One pass for the log-sum-exp, one to gather the candidates.
#include "backend/cpu/sampling/logprobs.h"

#include <algorithm>

#include "backend/cpu/sampling/sampling_support.h"
#include "backend/scalar_math.h"

namespace imp::cpu {

LogSoftmax::LogSoftmax(const SamplingOps& ops, std::span<const float> logits, float greatest,
                       const SamplingScratch& scratch)
    : greatest_(greatest) {
  const auto n = static_cast<int>(logits.size());
  ops.block_masses(logits.data(), n, greatest, 1.0F, scratch.masses);
  std::uint64_t total = 0;
  for (int block = 0; block * kMassBlock < n; ++block) total += scratch.masses[block];
  log_sum_ = log_of(static_cast<double>(total) * 0x1p-40);
}

float LogSoftmax::operator()(float logit) const {
  return static_cast<float>(static_cast<double>(logit) - static_cast<double>(greatest_) - log_sum_);
}

void list_candidates(const SamplingOps& ops, std::span<const float> logits, const LogSoftmax& log_softmax,
                     const SamplingScratch& scratch, std::span<Candidate> candidates) {
  const auto vocab_size = static_cast<int>(logits.size());
  candidates = candidates.first(std::min(candidates.size(), logits.size()));
  if (candidates.empty()) return;
  const LogitKey least = least_key_of_top(static_cast<int>(candidates.size()), vocab_size, scratch);
  const int n = ops.gather(logits.data(), vocab_size, least, scratch.ids, scratch.values);
  // Insertion sort by the logits, since two log-probabilities may round to the same value. It compares keys, since
  // denormals compare as equal and the first candidate must be the token of greedy sampling.
  std::size_t held = 0;
  for (int i = 0; i < n; ++i) {
    const float value = scratch.values[i];
    std::size_t at = held;
    while (at > 0 && key_of(candidates[at - 1].logprob) < key_of(value)) --at;
    if (at == candidates.size()) continue;
    held = std::min(held + 1, candidates.size());
    std::copy_backward(candidates.begin() + static_cast<std::ptrdiff_t>(at),
                       candidates.begin() + static_cast<std::ptrdiff_t>(held) - 1,
                       candidates.begin() + static_cast<std::ptrdiff_t>(held));
    candidates[at] = {scratch.ids[i], value};
  }
  for (Candidate& candidate : candidates) candidate.logprob = log_softmax(candidate.logprob);
}

}  // namespace imp::cpu
