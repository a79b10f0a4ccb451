// Weight layouts: packs rows of a file into panels of 16 rows, and restores a row.
//
// panel16 holds ceil(n / 16) consecutive panels; the last is zero-padded to 16 rows. A panel has exactly the bytes of
// its 16 rows in the file:
//   F32, F16         [k][16 rows]
//   BF16             [k / 2][16 rows][2], then [16 rows] where k is odd
//   all others       per block of k one panel block (quantized/panel_blocks.h)
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/gemm.h"

namespace imp::cpu {

// Whether a layout exists for a type; `file` exists for all.
bool has_layout(DType dtype, WeightLayout layout) noexcept;

// Packs n_rows (1 to 16) consecutive file rows into a zeroed panel.
void pack_panel(DType dtype, const std::byte* rows, int n_rows, std::int64_t k, std::byte* panel) noexcept;

// The bytes of one row in the file's format.
void unpack_row(const GemmProblem& problem, WeightLayout layout, const std::byte* packed, std::int64_t row,
                std::byte* out) noexcept;

}  // namespace imp::cpu
