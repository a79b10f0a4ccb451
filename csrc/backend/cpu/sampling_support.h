// Which candidates a draw is made from: top-k, min-p, top-p and typical-p as exact sets.
#pragma once

#include <cstdint>
#include <span>

#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/sampling_scratch.h"
#include "backend/sampler.h"

namespace imp::cpu {

// Candidates by ascending id with their integer weights; views into the scratch.
struct Support {
  std::span<const std::int32_t> ids;
  std::span<const std::uint64_t> weights;
  std::uint64_t total = 0;
};

LogitKey key_of(float logit);

// Whether choose_support reads the chunk keys of the scratch, which the scan of the same logits writes.
bool needs_chunk_keys(const SamplerParams& params, int vocab_size);

// The kept set of a row whose greatest logit is finite; temperature is at least that of greedy sampling.
Support choose_support(const SamplingOps& ops, std::span<const float> logits, float greatest,
                       const SamplerParams& params, const SamplingScratch& scratch);

// The first candidate, by ascending id, whose inclusive cumulative weight is above floor(random · total / 2^64).
std::int32_t draw(const Support& support, std::uint64_t random);

// The same draw from all candidates of a row, without listing them.
std::int32_t draw_from_all(const SamplingOps& ops, std::span<const float> logits, float greatest, float temperature,
                           std::uint64_t random, const SamplingScratch& scratch);

// The least key that is certain to admit the k greatest of a row whose chunk keys are in the scratch.
LogitKey least_key_of_top(int k, int vocab_size, const SamplingScratch& scratch);

}  // namespace imp::cpu
