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
  return limits.request_bytes() + limits.result_bytes() + adjusted_bytes(limits);
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
    round.requests = allocate_staging(wider.request_bytes());
    round.results = allocate_staging(wider.result_bytes());
  }
  device_requests_ = allocate_on_device(wider.request_bytes());
  device_results_ = allocate_on_device(wider.result_bytes());
  adjusted_ = allocate_on_device(adjusted_bytes(wider));
  limits_ = wider;
  plan_.set_limits(limits_);
}

SamplingMemory Sampler::memory(int vocab_size) const noexcept {
  const auto n = static_cast<std::size_t>(limits_.max_requests);
  const std::byte* const units = device_requests_.get() + n * sizeof(DeviceRequest);
  return {.requests = reinterpret_cast<const DeviceRequest*>(device_requests_.get()),
          .adjustments = reinterpret_cast<const Adjustment*>(units),
          .masks = reinterpret_cast<const std::uint32_t*>(units),
          .results = reinterpret_cast<DeviceResult*>(device_results_.get()),
          .candidates = reinterpret_cast<Candidate*>(device_results_.get() + n * sizeof(DeviceResult)),
          .adjusted = {.data = reinterpret_cast<float*>(adjusted_.get()),
                       .n_rows = limits_.max_requests,
                       .width = vocab_size,
                       .stride = stride_of(limits_.vocab_size)}};
}

template <class Request>
std::size_t Sampler::plan_round(std::span<const Request> requests, int vocab_size) {
  IMP_CHECK(n_begun_ - n_finished_ < rounds_.size());
  const ComputeFloatMode mode;  // penalties as the CPU computes them
  plan_.begin(round(n_begun_).requests.get());
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
  copy_to_device(stream_, device_requests_.get(), round(n_begun_).requests.get(), plan_.used_bytes());
}

void Sampler::receive() {
  const std::size_t n_bytes =
      static_cast<std::size_t>(limits_.max_requests) * sizeof(DeviceResult) + plan_.n_candidates() * sizeof(Candidate);
  Round& begun = round(n_begun_++);
  copy_to_host(stream_, begun.results.get(), device_results_.get(), n_bytes);
  begun.done.record(stream_);
  begun.n_requests = plan_.n_requests();
}

template <class Request>
void Sampler::read(const Round& round, std::span<const Request> requests, std::span<SampleResult> results) {
  round.done.wait(stream_);
  if (!stream_.is_ok()) return;
  const auto* const device_requests = reinterpret_cast<const DeviceRequest*>(round.requests.get());
  const auto* const device_results = reinterpret_cast<const DeviceResult*>(round.results.get());
  const auto* const candidates = reinterpret_cast<const Candidate*>(device_results + limits_.max_requests);
  for (std::size_t i = 0; i < static_cast<std::size_t>(round.n_requests); ++i) {
    results[i] = {
        .status = device_results[i].status, .token = device_results[i].token, .logprob = device_results[i].logprob};
    if (device_results[i].status == SampleStatus::non_finite) continue;
    if (requests[i].candidates.empty()) continue;
    std::copy_n(candidates + device_requests[i].first_candidate, device_requests[i].n_candidates,
                requests[i].candidates.begin());
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
