// Sampling in order: check the row, adjust a copy, take the argmax or draw, report.
#include "backend/cpu/sampling/sampling.h"

#include <algorithm>
#include <limits>

#include "backend/adjustments.h"
#include "backend/cpu/sampling/logprobs.h"
#include "backend/cpu/sampling/penalties.h"
#include "backend/cpu/sampling/sampling_support.h"
#include "backend/philox.h"
#include "backend/sampling_rules.h"
#include "base/arena.h"
#include "base/error.h"

namespace imp::cpu {
namespace {

std::span<const float> row_of(Rows logits, int row) {
  return {logits.data + row * logits.stride, static_cast<std::size_t>(logits.width)};
}

}  // namespace

std::size_t Sampler::scratch_bytes(int vocab_size, int max_context) const {
  return static_cast<std::size_t>(threads_.n_threads()) *
         SamplingScratch::n_bytes(vocab_size, max_history_of(max_context));
}

void Sampler::reserve(int vocab_size, int max_context) {
  vocab_size_ = std::max(vocab_size_, vocab_size);
  max_history_ = std::max(max_history_, max_history_of(max_context));
  const std::size_t stride = SamplingScratch::n_bytes(vocab_size_, max_history_);
  const std::size_t n_bytes = static_cast<std::size_t>(threads_.n_threads()) * stride;
  if (n_bytes > scratch_bytes_) memory_ = Arena(n_bytes).allocate(n_bytes);
  scratch_bytes_ = n_bytes;
  scratch_.clear();
  for (int thread = 0; thread < threads_.n_threads(); ++thread) {
    std::byte* memory = memory_.get() + static_cast<std::size_t>(thread) * stride;
    scratch_.push_back(SamplingScratch::in(memory, vocab_size_, max_history_));
  }
}

SampleResult Sampler::choose(std::span<const float> logits, const SampleRequest& request, std::uint64_t random,
                             const SamplingScratch& scratch) const {
  const SamplerParams& params = *request.params;
  const auto vocab_size = static_cast<int>(logits.size());
  const bool greedy = is_greedy(params);
  const bool unadjusted = leaves_logits(request);
  const bool chunks = needs_chunk_keys(params, vocab_size) && !greedy;
  RowScan found = ops_.scan(logits.data(), vocab_size,
                            (chunks && unadjusted) || !request.candidates.empty() ? scratch.chunk_keys : nullptr);
  if (!found.finite) return {.status = SampleStatus::non_finite};
  const auto at = [](std::span<const float> row, std::int32_t id) { return row[static_cast<std::size_t>(id)]; };

  // Run before the adjusted row overwrites the masses and chunk keys of the raw row.
  const float greatest = at(logits, found.index);
  const bool reports = request.logprob || !request.candidates.empty();
  LogSoftmax log_softmax = reports ? LogSoftmax(ops_, logits, greatest, scratch) : LogSoftmax();
  if (!request.candidates.empty()) list_candidates(ops_, logits, log_softmax, scratch, request.candidates);

  std::span<const float> row = logits;
  if (!unadjusted) {
    const std::span<float> adjusted = {scratch.adjusted, logits.size()};
    std::ranges::copy(logits, adjusted.begin());
    adjust_logits(request, adjusted, scratch);
    row = adjusted;
    found = ops_.scan(row.data(), vocab_size, chunks ? scratch.chunk_keys : nullptr);
    if (at(row, found.index) == -std::numeric_limits<float>::infinity()) return {.status = SampleStatus::no_candidate};
  }

  std::int32_t token = found.index;
  if (!greedy && keeps_all(params, vocab_size)) {
    token = draw_from_all(ops_, row, at(row, found.index), params.temperature, random, scratch);
  } else if (!greedy) {
    token = draw(choose_support(ops_, row, at(row, found.index), params, scratch), random);
  }
  return {.token = token, .logprob = request.logprob ? log_softmax(at(logits, token)) : 0};
}

void Sampler::sample(Rows logits, std::span<const SampleRequest> requests, std::span<SampleResult> results) {
  for (const SampleRequest& request : requests) {
    IMP_CHECK(static_cast<std::int64_t>(request.history.size()) <= scratch_.front().max_history);
    IMP_CHECK(request.n_output >= 0 && static_cast<std::size_t>(request.n_output) <= request.history.size());
  }
  threads_.run(static_cast<int>(requests.size()), [&](int i, int thread) {
    const SampleRequest& request = requests[static_cast<std::size_t>(i)];
    const std::uint64_t random = draw_bits(request.params->seed, request.sequence, request.index);
    results[static_cast<std::size_t>(i)] =
        choose(row_of(logits, request.logits_row), request, random, scratch_[static_cast<std::size_t>(thread)]);
  });
}

void Sampler::score(Rows logits, std::span<const ScoreRequest> requests, std::span<SampleResult> results) {
  threads_.run(static_cast<int>(requests.size()), [&](int i, int thread) {
    const ScoreRequest& request = requests[static_cast<std::size_t>(i)];
    const SamplingScratch& scratch = scratch_[static_cast<std::size_t>(thread)];
    const std::span<const float> row = row_of(logits, request.logits_row);
    const RowScan found = ops_.scan(row.data(), logits.width, scratch.chunk_keys);
    SampleResult& result = results[static_cast<std::size_t>(i)];
    result = {.status = SampleStatus::non_finite, .token = request.token};
    if (!found.finite) return;
    const LogSoftmax log_softmax(ops_, row, row[static_cast<std::size_t>(found.index)], scratch);
    list_candidates(ops_, row, log_softmax, scratch, request.candidates);
    result.status = SampleStatus::ok;
    result.logprob = log_softmax(row[static_cast<std::size_t>(request.token)]);
  });
}

}  // namespace imp::cpu
