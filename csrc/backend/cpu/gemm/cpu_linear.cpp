// Restores rows of a packed weight to the file's format.
#include "backend/cpu/gemm/cpu_linear.h"

#include <utility>

#include "backend/cpu/gemm/layouts.h"

namespace imp::cpu {

CpuLinear::CpuLinear(const GemmProblem& problem, GemmPlan plan, std::shared_ptr<std::byte> bytes)
    : problem_(problem),
      plan_(std::move(plan)),
      row_bytes_(static_cast<std::size_t>(*imp::row_bytes(problem.weight, problem.k))),
      n_bytes_(packed_bytes(problem, plan_.layout)),
      bytes_(std::move(bytes)) {}

void CpuLinear::read_row(std::int64_t row, std::byte* out) const noexcept {
  unpack_row(problem_, plan_.layout, bytes_.get(), row, out);
}

void CpuLinear::decode_row(std::int64_t row, std::byte* scratch, float* out) const noexcept {
  read_row(row, scratch);
  const DTypeTraits& type = traits(problem_.weight);
  type.dequantize(scratch, out, problem_.k / type.block_elements);
}

}  // namespace imp::cpu
