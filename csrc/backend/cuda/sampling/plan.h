// The requests of one round of the sampler, packed in memory that is uploaded in one copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/adjustments.h"
#include "backend/cuda/sampling/data.h"
#include "backend/sampler.h"

namespace imp::cuda {

// The capacity of a round. The longest request always fits; several long ones get a round each.
struct SamplingLimits {
  int max_requests = 0;
  int vocab_size = 0;
  int max_history = 0;

  bool operator==(const SamplingLimits&) const = default;
  // Adjustments and mask words share units of 8 bytes.
  std::size_t units_of_longest() const noexcept;
  std::size_t n_units() const noexcept;
  std::size_t n_candidates() const noexcept;
  std::size_t request_bytes() const noexcept;  // [max_requests] DeviceRequest, then the units
  std::size_t result_bytes() const noexcept;   // [max_requests] DeviceResult, then the candidates
};

class SamplingPlan {
 public:
  void set_limits(const SamplingLimits& limits);

  // Packs the next requests into limits.request_bytes() at `memory`.
  void begin(std::byte* memory) noexcept;
  // Returns false and adds nothing if the round is full.
  bool add(const SampleRequest& request, int vocab_size);
  bool add(const ScoreRequest& request, int vocab_size);

  int n_requests() const noexcept { return n_requests_; }
  bool is_adjusted() const noexcept { return is_adjusted_; }
  std::size_t used_bytes() const noexcept;  // from the beginning of the memory
  std::size_t n_candidates() const noexcept { return n_candidates_; }

 private:
  friend struct TestAccess;
  bool has_room(std::size_t n_units, std::size_t n_candidates) const noexcept;
  DeviceRequest& take(int logits_row, std::size_t n_candidates);
  void put_adjustments(const SampleRequest& request, int vocab_size, DeviceRequest& packed);
  void put_masks(const SampleRequest& request, int vocab_size, DeviceRequest& packed);

  SamplingLimits limits_;
  DeviceRequest* requests_ = nullptr;
  Adjustment* units_ = nullptr;
  int n_requests_ = 0;
  std::size_t n_units_ = 0;
  std::size_t n_candidates_ = 0;
  bool is_adjusted_ = false;
  std::vector<std::int32_t> counts_, matches_;
};

}  // namespace imp::cuda
