// How a file's rows become the bytes of a layout, and back: on the host, once for each weight.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/gemm.h"

namespace imp::cuda {

// Packs rows of the file [first_row, first_row + n_rows), which begin at a multiple of 16 and end at one or at n, into
// their tiles: `out` is where the weight's row first_row begins in the layout. Missing rows and elements become zero.
void pack_rows(const GemmProblem& problem, WeightLayout layout, std::int64_t first_row, std::int64_t n_rows,
               const std::byte* rows, std::byte* out);
// The inverse for one row: the file's bytes of it.
void unpack_row(const GemmProblem& problem, WeightLayout layout, const std::byte* weight, std::int64_t row,
                std::byte* out);
// Whether tile16 has such weights.
bool has_tiles(DType weight) noexcept;

}  // namespace imp::cuda
