// Runs the matrix products of the CPU backend.
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
#include "base/float_mode.h"
#include "base/thread_pool.h"

namespace imp::cpu {

// A weight, and input rows in the format of its kernel.
struct GemmProduct {
  const CpuLinear* weight = nullptr;
  const GemmKernel* kernel = nullptr;
  const float* bias = nullptr;  // [n], or null
  const std::byte* activations = nullptr;
  std::ptrdiff_t activation_stride = 0;  // bytes
  Rows out;                              // as many rows as there are activations
};

// A range of outputs of one term for one thread. Sums over k are never split on the CPU.
struct GemmTask {
  int term = 0;
  std::int64_t n_begin = 0;
  std::int64_t n_end = 0;
};

// Splits the outputs of all terms into tasks of decreasing size: large ones first for long memory streams, small ones
// last so that all threads finish together. `cost` is that of a panel of 16 outputs.
struct TermSize {
  std::int64_t n = 0;
  std::int64_t cost = 0;
};
void split_terms(std::span<const TermSize> terms, int n_threads, std::vector<GemmTask>& tasks);

// out = activation(gate) · up, elementwise over n elements
using Activate = void (*)(const float* gate, const float* up, int n, float* out);

// Owns the prepared inputs, each thread's scratch and the launch counters. One thread at a time calls it.
class GemmRunner {
 public:
  static constexpr std::size_t kMaxTerms = 64;
  static constexpr std::size_t kMaxExpertTerms = 2;

  GemmRunner(const GemmRegistry& registry, ThreadPool& pool);

  // Sizes the scratch; may be called again, never shrinks.
  void reserve(const WorkspaceNeeds& needs);

  std::size_t scratch_bytes(const WorkspaceNeeds& needs) const;  // needed for `needs`
  std::size_t scratch_bytes() const noexcept;                    // held now

  // Each term's out = x · weightᵀ + bias, within the reserved sizes. The input is prepared once for all terms.
  void run(Rows x, std::span<const LinearTerm> terms);
  // out = activation(gate, up) of both products, combined in parts that fit a CPU cache.
  void run_gated(Rows x, const GatedTerm& term, Activate activate);
  // See Backend. Each input row is prepared once and copied for each of its experts.
  void run_expert_in(Rows x, const ExpertRows& rows, std::span<const ExpertTerm> terms);
  void run_expert_out(Rows grouped, const ExpertRows& rows, const ExpertTerm& term);

  // Products run by each kernel, in the registry's order. Any thread may read it.
  std::vector<std::uint64_t> launches() const;

 private:
  friend struct TestAccess;
  struct Scratch {
    ByFormat<std::size_t> prepared{};  // bytes of the input in each format
    std::size_t stride = 0;            // bytes of each thread
    std::size_t gated = 0;             // floats per thread
  };
  // An input in one format, row after row.
  struct Prepared {
    const std::byte* rows = nullptr;
    std::ptrdiff_t stride = 0;  // bytes
  };
  using Inputs = ByFormat<Prepared>;  // one input in each format that this call needs
  std::size_t total_bytes(const Scratch& scratch) const;
  static Scratch scratch_for(const WorkspaceNeeds& needs);
  void reserve_products(std::size_t n_products);

  // Calls body(row) for each row, on the pool if there are many.
  template <class Body>
  void for_rows(int n_rows, const Body& body);
  std::byte* prepared_buffer(ActivationFormat format, std::ptrdiff_t n_bytes) const;
  Prepared prepare(Rows x, ActivationFormat format);
  Prepared prepare_expert_in(Rows x, const ExpertRows& rows, ActivationFormat format);

  static std::size_t gated_floats(int max_rows);

  void begin() noexcept;
  // A term's product with x. Prepares x unless `inputs` already has it in the kernel's format.
  GemmProduct product_of(Rows x, const LinearTerm& term, Inputs& inputs);
  // Adds a product that costs `panel_cost` per panel of 16 outputs.
  void add(const GemmProduct& product, std::int64_t panel_cost);
  void count(const GemmKernel& kernel) noexcept;
  // Adds the product of grouped rows. prepare_grouped(format) makes the formats that `inputs` lacks.
  template <class PrepareGrouped>
  void add_experts(const ExpertTerm& term, const ExpertRows& rows, Inputs& inputs,
                   const PrepareGrouped& prepare_grouped);
  void finish();  // runs the added products
  // Writes outputs [n_begin, n_end) of a product to `out`, whose rows are out_stride apart.
  void run_outputs(const GemmProduct& product, std::int64_t n_begin, std::int64_t n_end, float* out,
                   std::ptrdiff_t out_stride, int thread) const;
  void run_gated_task(const GemmProduct& gate, const GemmProduct& up, Activate activate, const GemmTask& task,
                      int thread) const;

  const GemmRegistry& registry_;
  ThreadPool& pool_;
  ByFormat<PrepareRow> prepare_row_{};  // null: rows are read as they are
  int prefetching_rows_;
  Arena arena_;
  ByFormat<std::shared_ptr<std::byte>> prepared_;
  ByFormat<std::size_t> prepared_bytes_{};
  std::shared_ptr<std::byte> scratch_;  // scratch_stride_ bytes per thread
  std::size_t scratch_stride_ = 0;
  std::shared_ptr<std::byte> gated_;  // gated_floats_ per thread
  std::size_t gated_floats_ = 0;
  std::vector<GemmProduct> products_;  // of this call
  std::vector<TermSize> sizes_;        // of those
  std::vector<GemmTask> tasks_;
  std::vector<std::atomic<std::uint64_t>> launches_;
};

template <class Body>
void GemmRunner::for_rows(int n_rows, const Body& body) {
  // Up to this many rows, a parallel loop costs more than it saves.
  constexpr int kSerialRows = 4;
  if (n_rows > kSerialRows) return pool_.run(n_rows, [&](int row, int) { body(row); });
  const ComputeFloatMode mode;
  for (int row = 0; row < n_rows; ++row) body(row);
}

}  // namespace imp::cpu
