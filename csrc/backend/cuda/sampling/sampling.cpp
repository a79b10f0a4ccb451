// Rounds of requests: upload, launch, read back.
#include "backend/cuda/sampling/sampling.h"

#include <algorithm>

#include "backend/cuda/device/device_memory.h"
#include "backend/cuda/device/runtime.h"
#include "backend/sampling_rules.h"
#include "base/ceil_div.h"
#include "base/error.h"
#include "base/float_mode.h"

namespace imp::cuda {
namespace {

std::ptrdiff_t stride_of(int vocab_size) {
  constexpr int kLineFloats = 32;
  return round_up(vocab_size, kLineFloats);
}

std::size_t adjusted_bytes(const SamplingLimits& limits) {
  return static_cast<std::size_t>(limits.max_requests) * static_cast<std::size_t>(stride_of(limits.vocab_size)) *
         sizeof(float);
}

std::size_t bytes_of(const SamplingLimits& limits) {
  return limits.asked_bytes() + limits.answer_bytes() + adjusted_bytes(limits);
}

SamplingLimits widened(const SamplingLimits& limits, int max_rows, int vocab_size, int max_context) {
  return {.max_requests = std::max(limits.max_requests, max_rows),
          .vocab_size = std::max(limits.vocab_size, vocab_size),
          .max_history = std::max(limits.max_history, max_history_of(max_context))};
}

}  // namespace

std::size_t Sampler::scratch_bytes(int max_rows, int vocab_size, int max_context) const {
  return bytes_of(widened({}, max_rows, vocab_size, max_context));
}

std::size_t Sampler::scratch_bytes() const noexcept {
  return bytes_of(limits_);
}

void Sampler::reserve(int max_rows, int vocab_size, int max_context) {
  const SamplingLimits wider = widened(limits_, max_rows, vocab_size, max_context);
  if (wider == limits_) return;
  for (Round& round : rounds_) {
    round.asked = allocate_staging(wider.asked_bytes());
    round.answers = allocate_staging(wider.answer_bytes());
  }
  asked_ = allocate_on_device(wider.asked_bytes());
  answers_ = allocate_on_device(wider.answer_bytes());
  adjusted_ = allocate_on_device(adjusted_bytes(wider));
  limits_ = wider;
  plan_.set_limits(limits_);
}

SamplingMemory Sampler::memory(int vocab_size) const noexcept {
  const auto n = static_cast<std::size_t>(limits_.max_requests);
  const std::byte* const units = asked_.get() + n * sizeof(Asked);
  return {.asked = reinterpret_cast<const Asked*>(asked_.get()),
          .adjustments = reinterpret_cast<const Adjustment*>(units),
          .masks = reinterpret_cast<const std::uint32_t*>(units),
          .answers = reinterpret_cast<Answer*>(answers_.get()),
          .candidates = reinterpret_cast<Candidate*>(answers_.get() + n * sizeof(Answer)),
          .adjusted = {.data = reinterpret_cast<float*>(adjusted_.get()),
                       .n_rows = limits_.max_requests,
                       .width = vocab_size,
                       .stride = stride_of(limits_.vocab_size)}};
}

template <class Request>
std::size_t Sampler::plan_round(std::span<const Request> requests, int vocab_size) {
  IMP_CHECK(n_begun_ - n_finished_ < rounds_.size());
  const ComputeFloatMode mode;  // penalties as the CPU computes them
  plan_.begin(round(n_begun_).asked.get());
  std::size_t n = 0;
  while (n < requests.size() && plan_.add(requests[n], vocab_size)) ++n;
  IMP_CHECK(n > 0);
  return n;
}

void Sampler::choose(Rows logits) {
  send();
  const SamplingMemory at = memory(logits.width);
  if (plan_.is_adjusted()) adjust_rows(stream_, logits, plan_.n_requests(), at);
  report_rows(stream_, logits, plan_.n_requests(), at);
  choose_tokens(stream_, logits, plan_.n_requests(), at);
  receive();
}

void Sampler::report(Rows logits) {
  send();
  report_rows(stream_, logits, plan_.n_requests(), memory(logits.width));
  receive();
}

void Sampler::send() {
  copy_to_device(stream_, asked_.get(), round(n_begun_).asked.get(), plan_.used_bytes());
}

void Sampler::receive() {
  const std::size_t n_bytes =
      static_cast<std::size_t>(limits_.max_requests) * sizeof(Answer) + plan_.n_candidates() * sizeof(Candidate);
  Round& begun = round(n_begun_++);
  copy_to_host(stream_, begun.answers.get(), answers_.get(), n_bytes);
  begun.done.record(stream_);
  begun.n_requests = plan_.n_requests();
}

template <class Request>
void Sampler::read(const Round& round, std::span<const Request> requests, std::span<SampleResult> results) {
  round.done.wait(stream_);
  if (!stream_.is_ok()) return;
  const auto* const asked = reinterpret_cast<const Asked*>(round.asked.get());
  const auto* const answers = reinterpret_cast<const Answer*>(round.answers.get());
  const auto* const candidates = reinterpret_cast<const Candidate*>(answers + limits_.max_requests);
  for (std::size_t i = 0; i < static_cast<std::size_t>(round.n_requests); ++i) {
    results[i] = {.status = answers[i].status, .token = answers[i].token, .logprob = answers[i].logprob};
    if (answers[i].status == SampleStatus::non_finite) continue;
    if (requests[i].candidates.empty()) continue;
    std::copy_n(candidates + asked[i].first_candidate, asked[i].n_candidates, requests[i].candidates.begin());
  }
}

template <class Request>
void Sampler::read_last(std::span<const Request> requests, std::span<SampleResult> results) {
  read(round(--n_begun_), requests, results);
}

bool Sampler::begin(Rows logits, std::span<const SampleRequest> requests) {
  if (requests.empty() || plan_round(requests, logits.width) < requests.size()) return false;
  choose(logits);
  return true;
}

void Sampler::finish(std::span<const SampleRequest> requests, std::span<SampleResult> results) {
  IMP_CHECK(n_finished_ < n_begun_);
  read(round(n_finished_++), requests, results);
}

void Sampler::sample(Rows logits, std::span<const SampleRequest> requests, std::span<SampleResult> results) {
  while (!requests.empty() && stream_.is_ok()) {
    const std::size_t n = plan_round(requests, logits.width);
    choose(logits);
    read_last(requests, results);
    requests = requests.subspan(n);
    results = results.subspan(n);
  }
}

void Sampler::score(Rows logits, std::span<const ScoreRequest> requests, std::span<SampleResult> results) {
  while (!requests.empty() && stream_.is_ok()) {
    const std::size_t n = plan_round(requests, logits.width);
    report(logits);
    read_last(requests, results);
    requests = requests.subspan(n);
    results = results.subspan(n);
  }
}

}  // namespace imp::cuda
