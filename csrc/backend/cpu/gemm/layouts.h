// How weights lie in memory: packing rows of a file into panels of 16 rows, and getting a row back.
//
// panel16 holds ceil(n / 16) panels one after the other, each ceil-padded to 16 rows with zero bytes; a panel has
// exactly the bytes of its 16 rows in the file:
//   F32, F16         [k][16 rows]
//   BF16             [k / 2][16 rows][2], then [16 rows] where k is odd
//   all others       per block of k one panel block (quantized/panel_blocks.h)
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/gemm.h"

namespace imp::cpu {

// Whether a layout is defined for a type; `file` is for all.
bool has_layout(DType dtype, WeightLayout layout) noexcept;

// Packs n_rows (1 to 16) consecutive file rows into one panel, which is zero before.
void pack_panel(DType dtype, const std::byte* rows, int n_rows, std::int64_t k, std::byte* panel) noexcept;

// The file's bytes of one row.
void unpack_row(const GemmProblem& problem, WeightLayout layout, const std::byte* packed, std::int64_t row,
                std::byte* out) noexcept;

}  // namespace imp::cpu
