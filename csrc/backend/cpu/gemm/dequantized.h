// Products of weights in the file's own layout: rows are decoded into float panels a piece of k at a time.
#pragma once

#include <cstddef>

#include "backend/cpu/gemm/panel_product.h"
#include "backend/gemm_args.h"

namespace imp::cpu {

std::size_t dequantized_scratch_bytes() noexcept;

// Every row that kernels of this kind multiply goes through its type's dequantizer; out carries the sums from one
// piece of k to the next.
void multiply_dequantized(const GemmArgs& args, const PanelOps& ops);

}  // namespace imp::cpu
