// Runs the matrix products of the CUDA backend, with those of experts.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/device/stream.h"
#include "backend/cuda/gemm/activation_rows.h"
#include "backend/cuda/gemm/expert_tables.h"
#include "backend/cuda/launch_counts.h"
#include "backend/gemm_launch.h"

namespace imp::cuda {

// Owns the prepared inputs, scratch, and tables of experts' weights.
class GemmRunner {
 public:
  static constexpr std::size_t kMaxTerms = 64;

  // Counts launches of the registry's kernels from `first_count` on, in the order of its list.
  GemmRunner(const GemmRegistry& registry, Stream& stream, LaunchCounts& launches, std::size_t first_count);

  // Sizes the scratch and writes the tables of experts. May be called again; never shrinks.
  void reserve(const WorkspaceNeeds& needs);
  std::size_t scratch_bytes(const WorkspaceNeeds& needs) const;  // what it would hold
  std::size_t scratch_bytes() const noexcept;                    // held now

  // Announces that the next product, with `reader`, reads x. Returns the buffer in which the op that computes x also
  // writes it in the format of that product; none without a reader or if the format does not allow it. If another op
  // follows instead, it calls forget().
  PreparedRows reserve_prepared(Rows x, const Linear* reader);
  void forget() noexcept { ready_ = {}; }

  // See Backend. The input is prepared once for all terms of one format; the terms of one kernel share a launch.
  void run(Rows x, std::span<const LinearTerm> terms);
  // One launch if both products use one kernel that fuses them.
  void run_gated(Rows x, const GatedTerm& term, GatedActivation kind);
  // An expert has at most as many rows as the batch: that number selects the kernels.
  void run_expert_in(Rows x, const ExpertRows& rows, std::span<const ExpertTerm> terms);
  void run_expert_out(Rows grouped, const ExpertRows& rows, const ExpertTerm& term);

 private:
  friend struct TestAccess;
  struct Scratch {
    ByFormat<std::size_t> prepared{};  // the input in each format
    std::size_t gate = 0;              // a gate's product
    std::size_t kernels = 0;
    std::size_t total() const noexcept;
  };
  // Device scratch for one purpose.
  struct ScratchBuffer {
    std::shared_ptr<std::byte> memory;
    std::size_t n_bytes = 0;
    void grow(std::size_t needed);
  };
  // An input in one format, row after row.
  struct Prepared {
    const std::byte* rows = nullptr;
    std::ptrdiff_t stride = 0;  // bytes
  };
  // One input in each format that this call needs.
  using Inputs = ByFormat<Prepared>;
  // A product that is not in a launch yet.
  struct Product {
    const GemmKernel* kernel = nullptr;
    GemmProblem problem;
    GemmLaunchTerm term;
  };

  // The prepared rows that the previous op wrote besides its own.
  struct Ready {
    const float* x = nullptr;
    int n_rows = 0;
    ActivationFormat format = ActivationFormat::f32;
  };

  Inputs inputs_of(Rows x) noexcept;  // takes what is ready, at most once
  static Scratch scratch_for(const WorkspaceNeeds& needs);
  const Prepared& prepare(Rows x, ActivationFormat format, Inputs& inputs);

  // Rows of out and their inputs: all of a launch except kernel, terms and format.
  struct Batch {
    Rows x;
    int m = 0;
    const ExpertRows* experts = nullptr;
    const std::int32_t* sources = nullptr;
  };
  static Product product_of(const Linear& weight, const Vector* bias, Rows out, int m);
  static bool is_alike(const Product& a, const Product& b) noexcept;  // whether they can be terms of one launch
  void launch(const Batch& batch, std::span<const Product> products, Inputs& inputs);
  void launch_one(const Batch& batch, std::span<const Product* const> products, GemmFusion fusion, Inputs& inputs);
  void launch_experts(const Batch& batch, std::span<const ExpertTerm> terms);

  const GemmRegistry& registry_;
  Stream& stream_;
  ByFormat<ScratchBuffer> prepared_;
  Ready ready_;
  ScratchBuffer gate_;
  ScratchBuffer kernel_scratch_;
  ExpertTables tables_;
  std::vector<Product> products_;  // of this call
  LaunchCounts& launches_;
  std::size_t first_count_;
};

}  // namespace imp::cuda
