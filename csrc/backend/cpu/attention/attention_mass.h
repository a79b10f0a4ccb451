// How much attention one query pays to each of many keys, for the scoring of prompts.
#pragma once

#include <memory>
#include <span>

#include "backend/attention.h"
#include "backend/cpu/kv/cpu_kv_pool.h"
#include "backend/cpu/ops/cpu_ops.h"
#include "backend/rows.h"
#include "base/thread_pool.h"

namespace imp::cpu {

// As Backend::attention_mass. The threads take whole heads, or keys of all heads, so that no sum is divided.
class AttentionMass {
 public:
  AttentionMass(const CpuOps& ops, ThreadPool& threads) : ops_(ops), threads_(threads) {}

  // May be called again; never shrinks.
  void reserve(int max_context, const AttentionParams& largest);
  std::size_t scratch_bytes(int max_context, const AttentionParams& largest) const;  // would be held
  std::size_t scratch_bytes() const noexcept { return n_bytes_; }

  void run(const CpuKvPool& pool, int layer, const SequenceRows& sequence, const AttentionParams& params, Rows q,
           int first_key, std::span<float> into);

 private:
  struct Call;
  void score(const Call& call, int kv_head, int split, int thread);
  void weigh(const Call& call, int head);
  void take_greatest(const Call& call, int first, int end);
  float* weights_of(int head) const noexcept;

  const CpuOps& ops_;
  ThreadPool& threads_;
  std::shared_ptr<std::byte> scratch_;  // of the threads; then a row of weights for each head
  std::size_t n_bytes_ = 0;
  std::size_t thread_floats_ = 0;
  std::size_t row_floats_ = 0;
  int n_heads_ = 0;
  float* weights_ = nullptr;
};

}  // namespace imp::cpu
