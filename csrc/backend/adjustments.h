// The adjustments of a request to its logits: penalties, biases and masks.
#pragma once

#include <cstdint>
#include <span>

#include "backend/sampler.h"

namespace imp {

using TokenIds = std::span<const std::int32_t>;

// In this order. The first multiplies or divides; the others add.
enum class AdjustmentStep : std::uint8_t { repetition, counts, dry, bias };
inline constexpr int kAdjustmentSteps = 4;

struct AdjustmentScratch {
  int vocab_size = 0;
  std::int32_t* counts = nullptr;   // [vocab_size]
  std::int32_t* matches = nullptr;  // as many as the history has tokens

  bool has(std::int32_t token) const noexcept { return token >= 0 && token < vocab_size; }
};

bool has_penalties(const SamplerParams& params) noexcept;
// Whether the request leaves its logits unchanged.
bool leaves_logits(const SampleRequest& request) noexcept;

// The last `window` ids; 0: all.
TokenIds last(TokenIds ids, std::int32_t window) noexcept;

// counts[id] = number of occurrences, for each valid id in `ids`.
void count_tokens(TokenIds ids, const AdjustmentScratch& scratch);

// DRY: counts[id] = 1 + the length of the longest suffix of the history (without a breaker) that occurs earlier in the
// history, followed by id.
void measure_repeats(TokenIds history, TokenIds breakers, const AdjustmentScratch& scratch);

// The DRY penalty of a repeat that is at least as long as the allowed length.
float dry_penalty(const SamplerParams& params, std::int32_t length);

// Calls visit(id, count) once for each counted id, and clears the counts.
template <class Visit>
void take_counts(TokenIds ids, const AdjustmentScratch& scratch, const Visit& visit) {
  for (const std::int32_t id : ids) {
    if (!scratch.has(id) || scratch.counts[id] == 0) continue;
    visit(id, scratch.counts[id]);
    scratch.counts[id] = 0;
  }
}

// Calls visit(step, token, amount) in the order of the steps. It visits a token once per step; `bias` visits it once
// per bias. The amount of `repetition` divides positive logits and multiplies others.
template <class Visit>
void visit_adjustments(const SampleRequest& request, const AdjustmentScratch& scratch, const Visit& visit) {
  const SamplerParams& params = *request.params;
  if (params.repetition_penalty != 1) {
    const TokenIds tokens = last(request.history, params.penalty_window);
    count_tokens(tokens, scratch);
    take_counts(tokens, scratch, [&](std::int32_t id, std::int32_t) {
      visit(AdjustmentStep::repetition, id, params.repetition_penalty);
    });
  }
  if (params.frequency_penalty != 0 || params.presence_penalty != 0) {
    const TokenIds output = request.history.last(static_cast<std::size_t>(request.n_output));
    const TokenIds tokens = last(output, params.penalty_window);
    count_tokens(tokens, scratch);
    take_counts(tokens, scratch, [&](std::int32_t id, std::int32_t count) {
      const float penalty = params.frequency_penalty * static_cast<float>(count) + params.presence_penalty;
      visit(AdjustmentStep::counts, id, -penalty);
    });
  }
  if (params.dry_multiplier != 0) {
    const TokenIds tokens = last(request.history, params.dry_window);
    measure_repeats(tokens, params.dry_breakers, scratch);
    take_counts(tokens, scratch, [&](std::int32_t id, std::int32_t longest) {
      if (longest - 1 >= params.dry_allowed_length) visit(AdjustmentStep::dry, id, -dry_penalty(params, longest - 1));
    });
  }
  for (const LogitBias& entry : params.logit_bias) {
    if (scratch.has(entry.token)) visit(AdjustmentStep::bias, entry.token, entry.bias);
  }
}

// The bits of ids from 32 · word on that all masks of a request allow.
std::uint32_t allowed_of(const SampleRequest& request, std::size_t word) noexcept;
bool has_masks(const SampleRequest& request) noexcept;

}  // namespace imp
