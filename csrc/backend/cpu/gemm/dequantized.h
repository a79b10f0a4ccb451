// Products of weights in the file's layout: rows are dequantized into float panels, one range of k at a time.
#pragma once

#include <cstddef>

#include "backend/cpu/gemm/panel_product.h"
#include "backend/gemm_args.h"

namespace imp::cpu {

std::size_t dequantized_scratch_bytes() noexcept;

// Every row goes through its type's dequantizer. `out` carries the sums from one range of k to the next.
void multiply_dequantized(const GemmArgs& args, const PanelOps& ops);

}  // namespace imp::cpu
