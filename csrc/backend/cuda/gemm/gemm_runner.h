// Runs the products of Backend::linear and of the experts on the device.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/gemm/cuda_linear.h"
#include "backend/cuda/stream.h"
#include "backend/gemm_launch.h"

namespace imp::cuda {

// The products to come.
struct GemmNeeds {
  int max_rows = 0;  // of any input
  std::span<const Linear* const> weights = {};
  ExpertRouting experts = {};
  std::span<const Linear* const> expert_weights = {};  // stacks of n_experts, one after the other
};

// Owns what products need beside weights: the prepared inputs, scratch, tables of experts' weights, the launch
// counters.
class GemmRunner {
 public:
  GemmRunner(const GemmRegistry& registry, Stream& stream);

  // Sizes the scratch and writes the tables of experts; may be called again, and never shrinks.
  void reserve(const GemmNeeds& needs);
  std::size_t scratch_bytes(const GemmNeeds& needs) const;  // what it would hold
  std::size_t scratch_bytes() const noexcept;               // held now
#if IMP_TESTING
  void fill_scratch(std::uint8_t value);
#endif

  // As Backend says. The input is prepared once for all terms that read it alike; terms of one kernel are one launch.
  void run(Rows x, std::span<const LinearTerm> terms);
  void run_gated(Rows x, const GatedTerm& term, GatedActivation kind);
  void run_to_experts(Rows x, const ExpertRows& rows, std::span<const ExpertTerm> terms);
  void run_of_experts(Rows grouped, const ExpertRows& rows, const ExpertTerm& term);

  // Launches so far of each kernel, in the order of the registry's list. Readable from any thread.
  std::vector<std::uint64_t> launches() const;

 private:
  const GemmRegistry& registry_;
  Stream& stream_;
};

}  // namespace imp::cuda
