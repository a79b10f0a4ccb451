// Chooses kernels: one plan per weight, made at load.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/gemm.h"

namespace imp {

// The kernels of one weight: the first whose max_m is at least m runs. All share one layout, one activation format
// and one reduction id, so that a row's bits do not depend on how many rows it comes with.
struct GemmPlan {
  WeightLayout layout = WeightLayout::file;
  std::vector<const GemmKernel*> kernels;  // by ascending max_m; the last takes any m
};

// A user's word on kernels, from the configuration: `pattern` is a weight type's name ("q4_k") or a glob over tensor
// names ("blk.*.ffn_down.weight"); `kernel` is a kernel's name.
struct GemmOverride {
  std::string pattern;
  std::string kernel;
};

// One line of explain(): a candidate, whether it was taken, and why not.
struct GemmCandidate {
  std::string_view kernel;
  bool accepted = false;
  std::string reason;  // empty where accepted
};

class GemmRegistry {
 public:
  // `kernels` is a list in order of preference whose last row, `reference`, refuses nothing.
  GemmRegistry(std::span<const GemmKernel> kernels, const DeviceCaps& caps) : kernels_(kernels), caps_(caps) {}

  // Throws ModelError(OVERRIDE_INVALID) where an override names a kernel that is unknown (listing the known) or that
  // refuses (with its reason). tensor_name may be empty.
  GemmPlan plan(const GemmProblem& problem, std::string_view tensor_name,
                std::span<const GemmOverride> overrides) const;
  std::vector<GemmCandidate> explain(const GemmProblem& problem, std::string_view tensor_name,
                                     std::span<const GemmOverride> overrides) const;
  std::span<const GemmKernel> kernels() const noexcept { return kernels_; }
  const DeviceCaps& caps() const noexcept { return caps_; }

 private:
  std::span<const GemmKernel> kernels_;
  DeviceCaps caps_;
};

}  // namespace imp
