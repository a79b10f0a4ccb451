// The parameters, requests and results of sampling: plain data for every backend.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/sampler_fields.h"
#include "base/ceil_div.h"

namespace imp {

struct LogitBias {
  std::int32_t token = 0;
  float bias = 0;
};

// Every field is resolved: the caller applies the defaults.
struct SamplerParams : SamplerValues {
  std::span<const std::int32_t> dry_breakers;  // token ids, ascending
  std::span<const LogitBias> logit_bias;
  std::uint64_t seed = 0;
};

struct Candidate {
  std::int32_t token = 0;
  float logprob = 0;  // log-softmax of the raw logits
};

// Words of a mask that has a bit per token id.
constexpr std::size_t mask_words(int vocab_size) noexcept {
  return ceil_div(static_cast<std::size_t>(vocab_size), 32);
}

struct SampleRequest {
  int logits_row = 0;
  const SamplerParams* params = nullptr;
  std::span<const std::int32_t> history;  // prompt ++ output, oldest first
  std::int32_t n_output = 0;              // the last n_output ids of history are output
  std::uint32_t sequence = 0;             // number of the sequence within its request
  std::uint32_t index = 0;                // output index
  // A bit per token id, lowest bit of word 0 first. A token is allowed if every non-null mask has its bit.
  std::array<const std::uint32_t*, 3> masks{};
  bool logprob = false;
  std::span<Candidate> candidates;  // filled with the most likely tokens, by (-logprob, id)
};

enum class SampleStatus : std::uint8_t { ok, non_finite, no_candidate };

struct SampleResult {
  SampleStatus status = SampleStatus::ok;
  std::int32_t token = -1;
  float logprob = 0;
};

// Scores a given token (of a prompt or a draft) in a row. The status is ok or non_finite.
struct ScoreRequest {
  int logits_row = 0;
  std::int32_t token = 0;
  std::span<Candidate> candidates;
};

}  // namespace imp
