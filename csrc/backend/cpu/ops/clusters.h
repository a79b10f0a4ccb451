// The choice of clusters, and the products of their rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/cpu/gemm/cpu_linear.h"
#include "backend/cpu/ops/cpu_ops.h"

namespace imp::cpu {

// The indices of the greatest values, in order; of equal ones the first come first. A NaN is never greater.
void find_greatest(const float* values, int n, std::span<int> greatest);

// x · the row of the weight, which is decoded in parts. `scratch` holds weight.row_bytes(). Call it inside
// ThreadPool::run.
float product_of_row(const CpuOps& ops, const CpuLinear& weight, std::int64_t row, const float* x, std::byte* scratch);

}  // namespace imp::cpu
