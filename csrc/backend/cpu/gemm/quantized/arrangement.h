// The order of a quantized block's bytes in a file's row and in a panel of 16 rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/cpu/gemm/quantized/panel_blocks.h"
#include "tensor/dtype.h"

namespace imp::cpu {

// Empty for types without panel blocks.
std::span<const UnitRun> arrangement(DType dtype) noexcept;

// Moves n_blocks blocks of each of n_rows (1 to 16) consecutive rows of the file into a zeroed panel.
void pack_blocks(DType dtype, const std::byte* rows, int n_rows, std::int64_t n_blocks, std::byte* panel) noexcept;

// The bytes of one row of a panel in the file's format.
void unpack_blocks(DType dtype, const std::byte* panel, std::int64_t row, std::int64_t n_blocks,
                   std::byte* out) noexcept;

}  // namespace imp::cpu
