// Chooses tokens from rows of logits on the device, and scores given ones: the host's side.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "backend/cuda/stream.h"
#include "backend/rows.h"
#include "backend/sampler.h"

namespace imp::cuda {

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
  Stream& stream_;
};

}  // namespace imp::cuda
