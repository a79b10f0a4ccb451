// A weight matrix in CPU memory, packed for its kernels.
#pragma once

#include <memory>
#include <span>

#include "backend/backend.h"

namespace imp::cpu {

class CpuLinear final : public Linear {
 public:
  CpuLinear(const GemmProblem& problem, GemmPlan plan, std::shared_ptr<std::byte> bytes);

  const GemmProblem& problem() const noexcept override { return problem_; }
  const GemmPlan& plan() const noexcept override { return plan_; }
  std::size_t n_bytes() const noexcept override { return n_bytes_; }
  std::span<const std::byte> packed() const noexcept override { return {bytes_.get(), n_bytes_}; }
  const std::byte* bytes() const noexcept { return bytes_.get(); }  // in the plan's layout

  // Bytes of a row in the file's format: the scratch of decode_row.
  std::size_t row_bytes() const noexcept { return row_bytes_; }
  // The bytes of one row in the file's format.
  void read_row(std::int64_t row, std::byte* out) const noexcept;
  // One row decoded to k floats. `scratch` holds row_bytes().
  void decode_row(std::int64_t row, std::byte* scratch, float* out) const noexcept;

 private:
  GemmProblem problem_;
  GemmPlan plan_;
  std::size_t row_bytes_;
  std::size_t n_bytes_;
  std::shared_ptr<std::byte> bytes_;
};

}  // namespace imp::cpu
