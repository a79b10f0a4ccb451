// Runs the products of Backend::linear on the CPU.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/gemm/activations.h"
#include "backend/cpu/gemm/cpu_linear.h"
#include "base/arena.h"
#include "base/thread_pool.h"

namespace imp::cpu {

// A range of outputs of one term, for one thread; a sum over k is never split.
struct GemmTask {
  int term = 0;
  std::int64_t n_begin = 0;
  std::int64_t n_end = 0;
};

// Cuts the outputs of all terms into tasks of decreasing size: large ones first, for long streams through memory,
// small ones last, so that all threads finish together. `cost` is that of one panel of 16 outputs.
struct TermSize {
  std::int64_t n = 0;
  std::int64_t cost = 0;
};
void split_terms(std::span<const TermSize> terms, int n_threads, std::vector<GemmTask>& tasks);

// Owns what products need beside weights: the prepared inputs, each thread's scratch, the launch counters. Called by
// one thread at a time.
class GemmRunner {
 public:
  static constexpr std::size_t kMaxTerms = 64;

  GemmRunner(const GemmRegistry& registry, ThreadPool& pool);

  // Sizes the scratch for inputs of up to max_rows rows and these weights; may be called again, and never shrinks.
  void reserve(int max_rows, std::span<const Linear* const> weights);

  std::size_t scratch_bytes(int max_rows, std::span<const Linear* const> weights) const;  // what it would hold
  std::size_t scratch_bytes() const noexcept;                                             // held now
#if IMP_TESTING
  void fill_scratch(std::uint8_t value);
#endif

  // Each term's out = x · weightᵀ + bias, within what was reserved. The input is prepared once for all terms.
  void run(Rows x, std::span<const LinearTerm> terms);

  // Products run so far by each kernel, in the order of the registry's list. Readable from any thread.
  std::vector<std::uint64_t> launches() const;

 private:
  static constexpr std::size_t kFormats = 3;  // of ActivationFormat

  struct Scratch {
    std::array<std::size_t, kFormats> prepared{};  // bytes of the input in each format
    std::size_t stride = 0;                        // bytes of each thread
  };
  std::size_t total_bytes(const Scratch& scratch) const;
  static Scratch scratch_for(int max_rows, std::span<const Linear* const> weights);
  void prepare(Rows x, ActivationFormat format);
  void run_task(const GemmTask& task, Rows x, std::span<const LinearTerm> terms, int thread) const;

  const GemmRegistry& registry_;
  ThreadPool& pool_;
  std::array<PrepareRow, kFormats> prepare_row_;
  Arena arena_;
  std::array<std::shared_ptr<std::byte>, kFormats> prepared_;
  std::array<std::size_t, kFormats> prepared_bytes_{};
  std::shared_ptr<std::byte> scratch_;  // scratch_stride_ bytes for each thread
  std::size_t scratch_stride_ = 0;
  std::vector<TermSize> sizes_;
  std::vector<GemmTask> tasks_;
  std::vector<std::atomic<std::uint64_t>> launches_;
};

}  // namespace imp::cpu
