// Chooses tokens from rows of logits on the device, and scores given ones: the host's side.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "backend/cuda/sampling_kernels.h"
#include "backend/cuda/sampling_plan.h"
#include "backend/cuda/stream.h"
#include "backend/rows.h"
#include "backend/sampler.h"

namespace imp::cuda {

// Works in rounds of as many requests as what was reserved holds, nearly always one. A round is a copy to the device,
// three launches at most, and a copy back. The choices are the CPU's, token for token, for equal logits; but for
// adjusted logits that round to the least normal number from below, on which CPUs differ too.
class Sampler {
 public:
  explicit Sampler(Stream& stream) : stream_(stream) {}

  // For up to max_rows rows of logits at a time; may be called again, and never shrinks.
  void reserve(int max_rows, int vocab_size, int max_context);
  std::size_t scratch_bytes(int max_rows, int vocab_size, int max_context) const;  // what it would hold
  std::size_t scratch_bytes() const noexcept;                                      // held now
#if IMP_TESTING
  void fill_scratch(std::uint8_t value);
#endif

  // Both wait for the device. After a failure of the stream the results are left as they were.
  void sample(Rows logits, std::span<const SampleRequest> requests, std::span<SampleResult> results);
  void score(Rows logits, std::span<const ScoreRequest> requests, std::span<SampleResult> results);

 private:
  SamplingMemory memory(int vocab_size) const noexcept;
  // Adds as many requests to the plan as fit, and returns their number.
  template <class Request>
  std::size_t plan_round(std::span<const Request> requests, int vocab_size);
  void send();
  void receive();
  template <class Request>
  void read_answers(std::span<const Request> requests, std::span<SampleResult> results) const;

  Stream& stream_;
  SamplingLimits limits_;
  SamplingPlan plan_;
  std::shared_ptr<std::byte> asked_on_host_, asked_;      // limits_.asked_bytes() each
  std::shared_ptr<std::byte> answers_on_host_, answers_;  // limits_.answer_bytes() each
  std::shared_ptr<std::byte> adjusted_;                   // a row for each request
};

}  // namespace imp::cuda
