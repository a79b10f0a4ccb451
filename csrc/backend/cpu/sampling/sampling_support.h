// The candidates of a draw: top-k, top-p ("The Curious Case of Neural Text Degeneration"), min-p ("Turning Up the Heat:
// Min-p Sampling for Creative and Coherent LLM Outputs") and typical-p ("Locally Typical Sampling"). Exact: integer
// weights replace floating-point sums.
#pragma once

#include <cstdint>
#include <span>

#include "backend/cpu/ops/cpu_ops.h"
#include "backend/cpu/sampling/sampling_scratch.h"
#include "backend/sampler.h"

namespace imp::cpu {

// Candidates by ascending id with integer weights; views into the scratch.
struct Support {
  std::span<const std::int32_t> ids;
  std::span<const std::uint64_t> weights;
  std::uint64_t total = 0;
};

LogitKey key_of(float logit);

// Whether choose_support reads the chunk keys, which the scan of the same logits writes to the scratch.
bool needs_chunk_keys(const SamplerParams& params, int vocab_size);

// The kept candidates. The greatest logit is finite, and temperature is at least that of greedy sampling.
Support choose_support(const SamplingOps& ops, std::span<const float> logits, float greatest,
                       const SamplerParams& params, const SamplingScratch& scratch);

// Inverse transform sampling: the first candidate, by ascending id, whose inclusive cumulative weight exceeds
// floor(random · total / 2^64).
std::int32_t draw(const Support& support, std::uint64_t random);

// The same draw from all candidates of a row without a list.
std::int32_t draw_from_all(const SamplingOps& ops, std::span<const float> logits, float greatest, float temperature,
                           std::uint64_t random, const SamplingScratch& scratch);

// A key that is at most the k-th greatest; the chunk keys of the row are in the scratch.
LogitKey least_key_of_top(int k, int vocab_size, const SamplingScratch& scratch);

}  // namespace imp::cpu
