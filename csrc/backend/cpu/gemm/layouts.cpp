// Packing and unpacking of panels, type by type.
#include "backend/cpu/gemm/layouts.h"

#include <cstring>

#include "backend/cpu/gemm/quantized/arrangement.h"
#include "backend/cpu/gemm/transpose_rows.h"

namespace imp::cpu {

namespace {

// Moves elements as units of their size. Uses memcpy, since rows of a file may have any alignment.
template <class Unit>
void pack_units(const std::byte* rows, int n_rows, std::size_t row_size, std::int64_t k, std::byte* panel) noexcept {
  if (n_rows == kPanelRows) return transpose_rows<sizeof(Unit)>(rows, row_size, static_cast<std::size_t>(k), panel);
  for (int row = 0; row < n_rows; ++row) {
    const std::byte* const from = rows + static_cast<std::size_t>(row) * row_size;
    for (std::int64_t i = 0; i < k; ++i) {
      std::memcpy(panel + static_cast<std::size_t>(i * kPanelRows + row) * sizeof(Unit),
                  from + static_cast<std::size_t>(i) * sizeof(Unit), sizeof(Unit));
    }
  }
}

template <class Unit>
void unpack_units(const std::byte* panel, std::int64_t row, std::int64_t k, std::byte* out) noexcept {
  for (std::int64_t i = 0; i < k; ++i) {
    std::memcpy(out + static_cast<std::size_t>(i) * sizeof(Unit),
                panel + static_cast<std::size_t>(i * kPanelRows + row) * sizeof(Unit), sizeof(Unit));
  }
}

// Pairs of 16-bit elements, then a single last one if k is odd.
constexpr std::int64_t kPairBytes = 4;

void pack_pairs(const std::byte* rows, int n_rows, std::int64_t k, std::byte* panel) noexcept {
  const std::size_t row_size = static_cast<std::size_t>(k) * 2;
  const std::int64_t paired = k / 2 * kPairBytes;
  pack_units<std::uint32_t>(rows, n_rows, row_size, k / 2, panel);
  pack_units<std::uint16_t>(rows + paired, n_rows, row_size, k % 2, panel + paired * kPanelRows);
}

void unpack_pairs(const std::byte* panel, std::int64_t row, std::int64_t k, std::byte* out) noexcept {
  const std::int64_t paired = k / 2 * kPairBytes;
  unpack_units<std::uint32_t>(panel, row, k / 2, out);
  unpack_units<std::uint16_t>(panel + paired * kPanelRows, row, k % 2, out + paired);
}

std::size_t bytes_of_row(const GemmProblem& problem) noexcept {
  return static_cast<std::size_t>(*row_bytes(problem.weight, problem.k));
}

}  // namespace

bool has_layout(DType dtype, WeightLayout layout) noexcept {
  return layout == WeightLayout::file || dtype == DType::F32 || dtype == DType::F16 || dtype == DType::BF16 ||
         !arrangement(dtype).empty();
}

void pack_panel(DType dtype, const std::byte* rows, int n_rows, std::int64_t k, std::byte* panel) noexcept {
  switch (dtype) {
    case DType::F32:
      return pack_units<std::uint32_t>(rows, n_rows, static_cast<std::size_t>(k) * 4, k, panel);
    case DType::F16:
      return pack_units<std::uint16_t>(rows, n_rows, static_cast<std::size_t>(k) * 2, k, panel);
    case DType::BF16:
      return pack_pairs(rows, n_rows, k, panel);
    default:
      return pack_blocks(dtype, rows, n_rows, k / traits(dtype).block_elements, panel);
  }
}

void unpack_row(const GemmProblem& problem, WeightLayout layout, const std::byte* packed, std::int64_t row,
                std::byte* out) noexcept {
  const std::size_t row_size = bytes_of_row(problem);
  if (layout == WeightLayout::file) {
    std::memcpy(out, packed + static_cast<std::size_t>(row) * row_size, row_size);
    return;
  }
  const std::byte* const panel = packed + static_cast<std::size_t>(row / kPanelRows * kPanelRows) * row_size;
  const std::int64_t lane = row % kPanelRows;
  switch (problem.weight) {
    case DType::F32:
      return unpack_units<std::uint32_t>(panel, lane, problem.k, out);
    case DType::F16:
      return unpack_units<std::uint16_t>(panel, lane, problem.k, out);
    case DType::BF16:
      return unpack_pairs(panel, lane, problem.k, out);
    default:
      return unpack_blocks(problem.weight, panel, lane, problem.k / traits(problem.weight).block_elements, out);
  }
}

}  // namespace imp::cpu
