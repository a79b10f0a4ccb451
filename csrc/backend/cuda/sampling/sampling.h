// Samples tokens from rows of logits on the device, and scores given tokens: host code.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "backend/cuda/device/runtime.h"
#include "backend/cuda/device/stream.h"
#include "backend/cuda/sampling/kernels.h"
#include "backend/cuda/sampling/plan.h"
#include "backend/rows.h"
#include "backend/sampler.h"

namespace imp::cuda {

// Works in rounds of as many requests as reserved; nearly always one round suffices. A round is one upload, up to three
// launches and one download; two may be in flight. For equal logits the choices are those of the CPU, token for token.
// The only exception is adjusted logits that round up to the least normal number, on which CPUs differ too.
class Sampler {
 public:
  explicit Sampler(Stream& stream) : stream_(stream) {}

  // For up to max_rows rows of logits at a time. May be called again; never shrinks.
  void reserve(int max_rows, int vocab_size, int max_context);
  std::size_t scratch_bytes(int max_rows, int vocab_size, int max_context) const;  // what it would hold
  std::size_t scratch_bytes() const noexcept;                                      // held now

  // Sampling in two halves. Returns false, and starts nothing, if one round is not enough. Rounds finish in the order
  // in which they began.
  bool begin(Rows logits, std::span<const SampleRequest> requests);
  void finish(std::span<const SampleRequest> requests, std::span<SampleResult> results);
  // Drops the rounds in flight; the device is done with them.
  void forget() noexcept { n_finished_ = n_begun_; }
  // The results of the last round begun, on the device; nullptr if nothing was reserved.
  const DeviceResult* device_results() const noexcept {
    return reinterpret_cast<const DeviceResult*>(device_results_.get());
  }

  // Both wait for the device, even with a round in flight. If the stream has failed, they leave the results unchanged.
  void sample(Rows logits, std::span<const SampleRequest> requests, std::span<SampleResult> results);
  void score(Rows logits, std::span<const ScoreRequest> requests, std::span<SampleResult> results);

 private:
  friend struct TestAccess;
  // A round on the host, until its results are read.
  struct Round {
    std::shared_ptr<std::byte> requests;  // limits_.request_bytes()
    std::shared_ptr<std::byte> results;   // limits_.result_bytes()
    int n_requests = 0;
    Event done;
  };

  SamplingMemory memory(int vocab_size) const noexcept;
  // Adds as many requests as fit to the next round, and returns their number.
  template <class Request>
  std::size_t plan_round(std::span<const Request> requests, int vocab_size);
  void choose(Rows logits);
  void report(Rows logits);
  void send();
  void receive();
  // Waits for the round.
  template <class Request>
  void read(const Round& round, std::span<const Request> requests, std::span<SampleResult> results);
  // Index of the last round, counted from those in flight.
  template <class Request>
  void read_last(std::span<const Request> requests, std::span<SampleResult> results);
  Round& round(std::size_t number) noexcept { return rounds_[number % rounds_.size()]; }

  Stream& stream_;
  SamplingLimits limits_;
  SamplingPlan plan_;
  std::array<Round, 2> rounds_;
  std::size_t n_begun_ = 0, n_finished_ = 0;
  std::shared_ptr<std::byte> device_requests_, device_results_;  // as in a round, on the device
  std::shared_ptr<std::byte> adjusted_;                          // a row per request
};

}  // namespace imp::cuda
