// Chooses tokens from rows of logits on the device, and scores given ones: the host's side.
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

// Works in rounds of as many requests as what was reserved holds, nearly always one. A round is a copy to the device,
// three launches at most, and a copy back; two may be under way. The choices are the CPU's, token for token, for equal
// logits; but for adjusted logits that round to the least normal number from below, on which CPUs differ too.
class Sampler {
 public:
  explicit Sampler(Stream& stream) : stream_(stream) {}

  // For up to max_rows rows of logits at a time; may be called again, and never shrinks.
  void reserve(int max_rows, int vocab_size, int max_context);
  std::size_t scratch_bytes(int max_rows, int vocab_size, int max_context) const;  // what it would hold
  std::size_t scratch_bytes() const noexcept;                                      // held now

  // A sampling in two halves; false, and nothing is begun, where it takes more than one round. Finished in the order in
  // which they were begun.
  bool begin(Rows logits, std::span<const SampleRequest> requests);
  void finish(std::span<const SampleRequest> requests, std::span<SampleResult> results);
  // What was begun is nobody's any more; the device has done it.
  void forget() noexcept { n_finished_ = n_begun_; }
  // Of the round begun last, on the device; nullptr where nothing was reserved.
  const Answer* answers() const noexcept { return reinterpret_cast<const Answer*>(answers_.get()); }

  // Both wait for the device, whether or not something is begun and not finished. After a failure of the stream the
  // results are left as they were.
  void sample(Rows logits, std::span<const SampleRequest> requests, std::span<SampleResult> results);
  void score(Rows logits, std::span<const ScoreRequest> requests, std::span<SampleResult> results);

 private:
  friend struct TestAccess;
  // A round on the host, until its answers are read.
  struct Round {
    std::shared_ptr<std::byte> asked;    // limits_.asked_bytes()
    std::shared_ptr<std::byte> answers;  // limits_.answer_bytes()
    int n_requests = 0;
    Event done;
  };

  SamplingMemory memory(int vocab_size) const noexcept;
  // Adds as many requests to the plan of the next round as fit, and returns their number.
  template <class Request>
  std::size_t plan_round(std::span<const Request> requests, int vocab_size);
  void choose(Rows logits);
  void report(Rows logits);
  void send();
  void receive();
  // Waits for the round.
  template <class Request>
  void read(const Round& round, std::span<const Request> requests, std::span<SampleResult> results);
  // Of the round begun last, before those that are not finished.
  template <class Request>
  void read_last(std::span<const Request> requests, std::span<SampleResult> results);
  Round& round(std::size_t number) noexcept { return rounds_[number % rounds_.size()]; }

  Stream& stream_;
  SamplingLimits limits_;
  SamplingPlan plan_;
  std::array<Round, 2> rounds_;
  std::size_t n_begun_ = 0, n_finished_ = 0;
  std::shared_ptr<std::byte> asked_, answers_;  // as a round's, on the device
  std::shared_ptr<std::byte> adjusted_;         // a row for each request
};

}  // namespace imp::cuda
