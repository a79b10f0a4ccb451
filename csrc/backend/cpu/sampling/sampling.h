// Samples tokens from rows of logits and scores given tokens: one request per task of the pool.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backend/cpu/ops/cpu_ops.h"
#include "backend/cpu/sampling/sampling_scratch.h"
#include "backend/rows.h"
#include "backend/sampler.h"
#include "base/thread_pool.h"

namespace imp::cpu {

class Sampler {
 public:
  Sampler(const CpuOps& ops, ThreadPool& threads) : ops_(ops.sampling), threads_(threads) {}

  // May be called again; never shrinks.
  void reserve(int vocab_size, int max_context);
  std::size_t scratch_bytes(int vocab_size, int max_context) const;  // would be held
  std::size_t scratch_bytes() const noexcept { return scratch_bytes_; }

  void sample(Rows logits, std::span<const SampleRequest> requests, std::span<SampleResult> results);
  void score(Rows logits, std::span<const ScoreRequest> requests, std::span<SampleResult> results);

  // The choice alone, for a row and 64 random bits. sample() calls it once per request.
  SampleResult choose(std::span<const float> logits, const SampleRequest& request, std::uint64_t random,
                      const SamplingScratch& scratch) const;

 private:
  friend struct TestAccess;
  const SamplingOps& ops_;
  ThreadPool& threads_;
  int vocab_size_ = 0;
  int max_history_ = 0;
  std::shared_ptr<std::byte> memory_;
  std::size_t scratch_bytes_ = 0;
  std::vector<SamplingScratch> scratch_;  // one per thread
};

}  // namespace imp::cpu
