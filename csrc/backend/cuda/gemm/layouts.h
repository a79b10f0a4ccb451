// Converts a file's rows to a layout and back, on the host.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/gemm.h"

namespace imp::cuda {

// Packs rows of the file [first_row, first_row + n_rows), which begin at a multiple of 16 and end at one or at n, into
// tiles. `out` is the place of row first_row in the layout. Padding rows and elements become zero.
void pack_rows(const GemmProblem& problem, WeightLayout layout, std::int64_t first_row, std::int64_t n_rows,
               const std::byte* rows, std::byte* out);
// The bytes of one row in the file's format.
void unpack_row(const GemmProblem& problem, WeightLayout layout, const std::byte* weight, std::int64_t row,
                std::byte* out);
// Whether tile16 exists for this type.
bool has_tiles(DType weight) noexcept;

}  // namespace imp::cuda
