// Counts of tokens and of repeats in a history.
#include "backend/adjustments.h"

#include <algorithm>

#include "backend/batch.h"

namespace imp {
namespace {

// Exponentiation by squaring, with the same multiplications on every platform.
double power(double base, std::int32_t exponent) {
  double result = 1;
  for (; exponent > 0; exponent /= 2, base *= base) {
    if (exponent % 2 != 0) result *= base;
  }
  return result;
}

void clear_counts(TokenIds ids, const AdjustmentScratch& scratch) {
  for (const std::int32_t id : ids) {
    if (scratch.has(id)) scratch.counts[id] = 0;
  }
}

}  // namespace

bool has_penalties(const SamplerParams& params) noexcept {
  return params.repetition_penalty != 1 || params.frequency_penalty != 0 || params.presence_penalty != 0 ||
         params.dry_multiplier != 0;
}

bool has_masks(const SampleRequest& request) noexcept {
  return std::ranges::any_of(request.masks, [](const std::uint32_t* words) { return words != nullptr; });
}

bool leaves_logits(const SampleRequest& request) noexcept {
  return !has_masks(request) && !has_penalties(*request.params) && request.params->logit_bias.empty();
}

TokenIds last(TokenIds ids, std::int32_t window) noexcept {
  const auto n = static_cast<std::size_t>(std::max(window, 0));
  return n == 0 || n >= ids.size() ? ids : ids.last(n);
}

void count_tokens(TokenIds ids, const AdjustmentScratch& scratch) {
  clear_counts(ids, scratch);
  for (const std::int32_t id : ids) {
    if (scratch.has(id)) ++scratch.counts[id];
  }
}

// The suffix that ends at a token repeats the end of the history. So the lengths are the Z-function of the reversed
// history, cut at the first breaker.
void measure_repeats(TokenIds history, TokenIds breakers, const AdjustmentScratch& scratch) {
  const auto n = static_cast<std::int64_t>(history.size());
  const auto from_end = [&](std::int64_t i) { return history[static_cast<std::size_t>(n - 1 - i)]; };
  std::int64_t limit = 0;
  const auto breaks = [&](std::int32_t id) { return is_media(id) || std::ranges::binary_search(breakers, id); };
  while (limit < n && !breaks(from_end(limit))) ++limit;
  std::int32_t* const matches = scratch.matches;
  for (std::int64_t i = 1, begin = 0, end = 0; i < n; ++i) {
    std::int64_t length = i < end ? std::min<std::int64_t>(end - i, matches[i - begin]) : 0;
    while (i + length < n && from_end(length) == from_end(i + length)) ++length;
    matches[i] = static_cast<std::int32_t>(length);
    if (i + length > end) {
      begin = i;
      end = i + length;
    }
  }
  clear_counts(history, scratch);
  for (std::int64_t i = 1; i <= n; ++i) {
    const std::int32_t follower = from_end(i - 1);
    if (!scratch.has(follower)) continue;
    const std::int64_t match = i < n ? std::min<std::int64_t>(matches[i], limit) : 0;
    std::int32_t& longest = scratch.counts[follower];
    longest = std::max(longest, static_cast<std::int32_t>(match + 1));
  }
}

float dry_penalty(const SamplerParams& params, std::int32_t length) {
  const std::int32_t excess = length - params.dry_allowed_length;
  return static_cast<float>(static_cast<double>(params.dry_multiplier) * power(params.dry_base, excess));
}

std::uint32_t allowed_of(const SampleRequest& request, std::size_t word) noexcept {
  std::uint32_t allowed = ~std::uint32_t{0};
  for (const std::uint32_t* words : request.masks) {
    if (words != nullptr) allowed &= words[word];
  }
  return allowed;
}

}  // namespace imp
