// Packing and unpacking of panels, type by type.
#include "backend/cpu/gemm/layouts.h"

#include <cstring>

#include "backend/cpu/gemm/q8_0_blocks.h"
#include "base/error.h"

namespace imp::cpu {

namespace {

// Elements are moved as units of their size, whatever they mean; memcpy since file rows have any alignment.
template <class Unit>
void pack_units(const std::byte* rows, int n_rows, std::int64_t k, std::byte* panel) noexcept {
  const std::size_t row_size = static_cast<std::size_t>(k) * sizeof(Unit);
  // Blocks of 16 elements keep the lines that are written, 16 rows each, in the first-level cache.
  for (std::int64_t begin = 0; begin < k; begin += kPanelRows) {
    const std::int64_t end = begin + kPanelRows < k ? begin + kPanelRows : k;
    for (int row = 0; row < n_rows; ++row) {
      const std::byte* const from = rows + static_cast<std::size_t>(row) * row_size;
      for (std::int64_t i = begin; i < end; ++i) {
        std::memcpy(panel + static_cast<std::size_t>(i * kPanelRows + row) * sizeof(Unit),
                    from + static_cast<std::size_t>(i) * sizeof(Unit), sizeof(Unit));
      }
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

// A Q8_0 block in the file: a float16 scale, then 32 codes.
constexpr std::size_t kFileBlock = 34;
constexpr std::uint32_t kPlus128 = 0x80808080;  // flipping the top bit adds 128 to each of four codes

void pack_q8_0(const std::byte* rows, int n_rows, std::int64_t k, std::byte* panel) noexcept {
  const std::size_t n_blocks = static_cast<std::size_t>(k) / 32;
  for (std::size_t b = 0; b < n_blocks; ++b) {
    std::byte* const block = panel + b * sizeof(PanelBlockQ8_0);
    for (std::size_t row = 0; row < static_cast<std::size_t>(n_rows); ++row) {
      const std::byte* const from = rows + (row * n_blocks + b) * kFileBlock;
      std::memcpy(block + offsetof(PanelBlockQ8_0, scales) + 2 * row, from, 2);
      for (std::size_t j = 0; j < 8; ++j) {
        std::uint32_t four;
        std::memcpy(&four, from + 2 + 4 * j, 4);
        four ^= kPlus128;
        std::memcpy(block + 64 * j + 4 * row, &four, 4);
      }
    }
  }
}

void unpack_q8_0(const std::byte* panel, std::size_t row, std::int64_t k, std::byte* out) noexcept {
  const std::size_t n_blocks = static_cast<std::size_t>(k) / 32;
  for (std::size_t b = 0; b < n_blocks; ++b) {
    const std::byte* const block = panel + b * sizeof(PanelBlockQ8_0);
    std::byte* const to = out + b * kFileBlock;
    std::memcpy(to, block + offsetof(PanelBlockQ8_0, scales) + 2 * row, 2);
    for (std::size_t j = 0; j < 8; ++j) {
      std::uint32_t four;
      std::memcpy(&four, block + 64 * j + 4 * row, 4);
      four ^= kPlus128;
      std::memcpy(to + 2 + 4 * j, &four, 4);
    }
  }
}

std::size_t bytes_of_row(const GemmProblem& problem) noexcept {
  return static_cast<std::size_t>(*row_bytes(problem.weight, problem.k));
}

}  // namespace

bool has_layout(DType dtype, WeightLayout layout) noexcept {
  return layout == WeightLayout::file || dtype == DType::F32 || dtype == DType::F16 || dtype == DType::BF16 ||
         dtype == DType::Q8_0;
}

void pack_panel(DType dtype, const std::byte* rows, int n_rows, std::int64_t k, std::byte* panel) noexcept {
  switch (dtype) {
    case DType::F32:
      return pack_units<std::uint32_t>(rows, n_rows, k, panel);
    case DType::F16:
    case DType::BF16:
      return pack_units<std::uint16_t>(rows, n_rows, k, panel);
    default:
      return pack_q8_0(rows, n_rows, k, panel);
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
    case DType::BF16:
      return unpack_units<std::uint16_t>(panel, lane, problem.k, out);
    default:
      return unpack_q8_0(panel, static_cast<std::size_t>(lane), problem.k, out);
  }
}

}  // namespace imp::cpu
