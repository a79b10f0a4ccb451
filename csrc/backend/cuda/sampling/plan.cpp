// Packs requests for the device. The host computes the adjustments that follow from a history.
#include "backend/cuda/sampling/plan.h"

#include <algorithm>

#include "backend/philox.h"
#include "backend/sampling_rules.h"
#include "base/ceil_div.h"
#include "base/error.h"

namespace imp::cuda {
namespace {

// Enough for most requests.
constexpr std::size_t kUsualAdjustments = 4096;
constexpr std::size_t kUsualCandidates = 64;

std::size_t mask_units(int vocab_size) {
  return ceil_div(mask_words(vocab_size), 2);
}

// Upper bound: a penalty affects each token once.
std::size_t units_of(const SampleRequest& request, int vocab_size) {
  const SamplerParams& params = *request.params;
  const std::size_t distinct = std::min(request.history.size(), static_cast<std::size_t>(vocab_size));
  std::size_t n = params.logit_bias.size();
  if (params.repetition_penalty != 1) n += distinct;
  if (params.frequency_penalty != 0 || params.presence_penalty != 0) n += distinct;
  if (params.dry_multiplier != 0) n += distinct;
  return n + (has_masks(request) ? mask_units(vocab_size) : 0);
}

// Stable, and in place.
void sort_by_token(std::span<Adjustment> entries) {
  for (std::size_t i = 1; i < entries.size(); ++i) {
    const Adjustment entry = entries[i];
    std::size_t at = i;
    for (; at > 0 && entries[at - 1].token > entry.token; --at) entries[at] = entries[at - 1];
    entries[at] = entry;
  }
}

}  // namespace

std::size_t SamplingLimits::units_of_longest() const noexcept {
  const auto distinct = static_cast<std::size_t>(std::min(max_history, vocab_size));
  return (kAdjustmentSteps - 1) * distinct + kMaxLogitBias + mask_units(vocab_size);
}

std::size_t SamplingLimits::n_units() const noexcept {
  if (max_requests == 0) return 0;
  const std::size_t usual = std::min(units_of_longest(), kUsualAdjustments + mask_units(vocab_size));
  return units_of_longest() + static_cast<std::size_t>(max_requests - 1) * usual;
}

std::size_t SamplingLimits::n_candidates() const noexcept {
  if (max_requests == 0) return 0;
  const auto longest = static_cast<std::size_t>(vocab_size);
  return longest + static_cast<std::size_t>(max_requests - 1) * std::min(longest, kUsualCandidates);
}

std::size_t SamplingLimits::request_bytes() const noexcept {
  return static_cast<std::size_t>(max_requests) * sizeof(DeviceRequest) + n_units() * sizeof(Adjustment);
}

std::size_t SamplingLimits::result_bytes() const noexcept {
  return static_cast<std::size_t>(max_requests) * sizeof(DeviceResult) + n_candidates() * sizeof(Candidate);
}

void SamplingPlan::set_limits(const SamplingLimits& limits) {
  limits_ = limits;
  counts_.resize(static_cast<std::size_t>(limits.vocab_size));
  matches_.resize(static_cast<std::size_t>(limits.max_history));
}

void SamplingPlan::begin(std::byte* memory) noexcept {
  requests_ = reinterpret_cast<DeviceRequest*>(memory);
  units_ = reinterpret_cast<Adjustment*>(requests_ + limits_.max_requests);
  n_requests_ = 0;
  n_units_ = 0;
  n_candidates_ = 0;
  is_adjusted_ = false;
}

std::size_t SamplingPlan::used_bytes() const noexcept {
  return static_cast<std::size_t>(limits_.max_requests) * sizeof(DeviceRequest) + n_units_ * sizeof(Adjustment);
}

bool SamplingPlan::has_room(std::size_t n_units, std::size_t n_candidates) const noexcept {
  return n_requests_ < limits_.max_requests && n_units <= limits_.n_units() - n_units_ &&
         n_candidates <= limits_.n_candidates() - n_candidates_;
}

DeviceRequest& SamplingPlan::take(int logits_row, std::size_t n_candidates) {
  DeviceRequest& packed = requests_[n_requests_++];
  packed = {};
  packed.logits_row = logits_row;
  packed.token = -1;
  packed.n_candidates = static_cast<std::int32_t>(n_candidates);
  packed.first_candidate = static_cast<std::int32_t>(n_candidates_);
  packed.first_mask_word = -1;
  n_candidates_ += n_candidates;
  return packed;
}

void SamplingPlan::put_adjustments(const SampleRequest& request, int vocab_size, DeviceRequest& packed) {
  const AdjustmentScratch scratch = {vocab_size, counts_.data(), matches_.data()};
  std::size_t n_of_step[kAdjustmentSteps] = {};
  std::size_t n = n_units_;
  visit_adjustments(request, scratch, [&](AdjustmentStep step, std::int32_t token, float amount) {
    units_[n++] = {token, amount};
    ++n_of_step[static_cast<std::size_t>(step)];
  });
  packed.steps[0] = static_cast<std::int32_t>(n_units_);
  for (int step = 0; step < kAdjustmentSteps; ++step) {
    packed.steps[step + 1] = packed.steps[step] + static_cast<std::int32_t>(n_of_step[step]);
  }
  const std::size_t n_biases = n_of_step[static_cast<std::size_t>(AdjustmentStep::bias)];
  sort_by_token({units_ + (n - n_biases), n_biases});
  n_units_ = n;
}

void SamplingPlan::put_masks(const SampleRequest& request, int vocab_size, DeviceRequest& packed) {
  auto* const words = reinterpret_cast<std::uint32_t*>(units_ + n_units_);
  for (std::size_t i = 0; i < mask_words(vocab_size); ++i) words[i] = allowed_of(request, i);
  packed.first_mask_word = static_cast<std::int32_t>(2 * n_units_);
  n_units_ += mask_units(vocab_size);
}

bool SamplingPlan::add(const SampleRequest& request, int vocab_size) {
  const SamplerParams& params = *request.params;
  IMP_CHECK(vocab_size <= limits_.vocab_size);
  IMP_CHECK(request.history.size() <= static_cast<std::size_t>(limits_.max_history));
  IMP_CHECK(request.n_output >= 0 && static_cast<std::size_t>(request.n_output) <= request.history.size());
  IMP_CHECK(params.logit_bias.size() <= kMaxLogitBias);
  const std::size_t n_candidates = std::min(request.candidates.size(), static_cast<std::size_t>(vocab_size));
  if (!has_room(units_of(request, vocab_size), n_candidates)) return false;
  DeviceRequest& packed = take(request.logits_row, n_candidates);
  packed.random = draw_bits(params.seed, request.sequence, request.index);
  packed.values = params;
  packed.values.top_k = active_top_k(params, vocab_size);
  packed.is_greedy = is_greedy(params);
  packed.keeps_all = keeps_all(params, vocab_size);
  packed.is_adjusted = !leaves_logits(request);
  packed.wants_logprob = request.logprob;
  if (packed.is_adjusted) put_adjustments(request, vocab_size, packed);
  if (has_masks(request)) put_masks(request, vocab_size, packed);
  is_adjusted_ = is_adjusted_ || packed.is_adjusted;
  return true;
}

bool SamplingPlan::add(const ScoreRequest& request, int vocab_size) {
  IMP_CHECK(vocab_size <= limits_.vocab_size && request.token >= 0 && request.token < vocab_size);
  const std::size_t n_candidates = std::min(request.candidates.size(), static_cast<std::size_t>(vocab_size));
  if (!has_room(0, n_candidates)) return false;
  DeviceRequest& packed = take(request.logits_row, n_candidates);
  packed.token = request.token;
  packed.wants_logprob = true;
  return true;
}

}  // namespace imp::cuda
