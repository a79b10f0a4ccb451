// A weight matrix in device memory, in the layout of its plan.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "backend/backend.h"

namespace imp::cuda {

class CudaLinear final : public Linear {
 public:
  CudaLinear(const GemmProblem& problem, GemmPlan plan, std::shared_ptr<std::byte> bytes)
      : problem_(problem),
        plan_(std::move(plan)),
        n_bytes_(packed_bytes(problem, plan_.layout)),
        bytes_(std::move(bytes)) {}

  const GemmProblem& problem() const noexcept override { return problem_; }
  const GemmPlan& plan() const noexcept override { return plan_; }
  std::size_t n_bytes() const noexcept override { return n_bytes_; }
  std::span<const std::byte> packed() const noexcept override { return {}; }
  const std::byte* bytes() const noexcept { return bytes_.get(); }  // on the device

 private:
  GemmProblem problem_;
  GemmPlan plan_;
  std::size_t n_bytes_;
  std::shared_ptr<std::byte> bytes_;
};

}  // namespace imp::cuda
