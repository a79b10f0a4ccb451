// Moves blocks between a file's rows and panels. The UnitRuns of a type describe the order.
#include "backend/cpu/gemm/quantized/arrangement.h"

#include <cstring>

#include "backend/cpu/gemm/quantized/changes.h"
#include "backend/cpu/gemm/quantized/types.h"
#include "backend/cpu/gemm/transpose_rows.h"
#include "tensor/quant/with_block.h"

namespace imp::cpu {

namespace {

constexpr std::size_t kRows = 16;

constexpr std::size_t bytes_of(std::span<const UnitRun> runs) {
  std::size_t total = 0;
  for (const UnitRun& run : runs) total += static_cast<std::size_t>(run.unit_bytes * run.n_units);
  return total;
}

// Checks that each arrangement fills its panel block, which is as large as 16 blocks of the file.
#define IMP_CHECK_SIZES(name, Type, isa)                                     \
  static_assert(sizeof(PanelBlock##Type) == kRows * bytes_of(kUnits##Type)); \
  static_assert(bytes_of(kUnits##Type) == sizeof(quant::Block##Type));
IMP_QUANTIZED_TYPES(IMP_CHECK_SIZES, any)
IMP_CHECK_SIZES(f8_e4m3, F8_E4M3, any)
#undef IMP_CHECK_SIZES

std::uint32_t load_word(const std::byte* from) noexcept {
  std::uint32_t word;
  std::memcpy(&word, from, sizeof word);
  return word;
}

// Q6_K's codes come first in its blocks, in the file and in the panel.
void regroup_block_q6_k(const std::byte* file, std::byte* codes) noexcept {
  regroup_q6_k<std::uint32_t>([&](std::size_t i) { return load_word(file + 4 * i); },
                              [&](std::size_t i, std::uint32_t unit) { std::memcpy(codes + 4 * i, &unit, 4); });
}

void ungroup_block_q6_k(std::byte* block) noexcept {
  const auto words = ungroup_q6_k([&](std::size_t i) { return load_word(block + 4 * i); });
  std::memcpy(block, words.data(), sizeof words);
}

enum class Way { to_panel, to_file };

template <Way way>
void change(Change what, std::byte* unit) noexcept {
  if (what == Change::none) return;
  std::uint32_t word = load_word(unit);
  if (what == Change::plus_128) {
    word = flip_top_bits(word);
  } else {
    word = way == Way::to_panel ? spread_bits(word) : gather_bits(word);
  }
  std::memcpy(unit, &word, sizeof word);
}

// Moves one row's units of a run: contiguous in the file, every 16th in the panel.
template <Way way, std::size_t unit, class File, class Panel>
void move_units(File* file, Panel* panel, const UnitRun& run) noexcept {
  for (int i = 0; i < run.n_units; ++i, file += unit, panel += kRows * unit) {
    if constexpr (way == Way::to_panel) {
      std::memcpy(panel, file, unit);
      if constexpr (unit == 4) change<way>(run.change, panel);
    } else {
      std::memcpy(file, panel, unit);
      if constexpr (unit == 4) change<way>(run.change, file);
    }
  }
}

template <Way way, class File, class Panel>
void move_block(std::span<const UnitRun> runs, File* file, Panel* panel, std::size_t row) noexcept {
  for (const UnitRun& run : runs) {
    const auto unit = static_cast<std::size_t>(run.unit_bytes);
    File* const in_file = file + run.file_offset;
    Panel* const in_panel = panel + row * unit;
    if (unit == 4) {
      move_units<way, 4>(in_file, in_panel, run);
    } else if (unit == 2) {
      move_units<way, 2>(in_file, in_panel, run);
    } else {
      move_units<way, 1>(in_file, in_panel, run);
    }
    panel += kRows * unit * static_cast<std::size_t>(run.n_units);
  }
}

// Moves a block of 16 rows of the file, `stride` bytes apart, at once: like move_block for each of them.
void transpose_block(std::span<const UnitRun> runs, const std::byte* rows, std::size_t stride,
                     std::byte* panel) noexcept {
  for (const UnitRun& run : runs) {
    const std::byte* const from = rows + run.file_offset;
    const auto n_units = static_cast<std::size_t>(run.n_units);
    if (run.unit_bytes == 1) {
      transpose_rows<1>(from, stride, n_units, panel);
    } else if (run.unit_bytes == 2) {
      transpose_rows<2>(from, stride, n_units, panel);
    } else if (run.change == Change::plus_128) {
      transpose_rows<4>(from, stride, n_units, panel, [](FourWords words) { return flip_top_bits(words); });
    } else if (run.change == Change::spread_bits) {
      transpose_rows<4>(from, stride, n_units, panel, [](FourWords words) { return spread_bits(words); });
    } else {
      transpose_rows<4>(from, stride, n_units, panel);
    }
    panel += kRows * static_cast<std::size_t>(run.unit_bytes) * n_units;
  }
}

// Converts the panel's Q6_K codes from the file's words, which transpose_block has left in place.
void regroup_lines_q6_k(std::byte* panel) noexcept {
  constexpr std::size_t kLine = 4 * kRows;
  alignas(64) std::byte lines[kFileWordsQ6_K * kLine];
  std::memcpy(lines, panel, sizeof lines);
  for (std::size_t at = 0; at < kLine; at += sizeof(FourWords)) {
    regroup_q6_k<FourWords>(
        [&](std::size_t i) {
          FourWords words;
          std::memcpy(&words, lines + i * kLine + at, sizeof words);
          return words;
        },
        [&](std::size_t i, FourWords unit) { std::memcpy(panel + i * kLine + at, &unit, sizeof unit); });
  }
}

void pack_part(DType dtype, const std::byte* rows, std::size_t n_rows, std::size_t n_blocks,
               std::byte* panel) noexcept {
  const std::span<const UnitRun> runs = arrangement(dtype);
  const std::size_t block = bytes_of(runs);
  std::byte regrouped[sizeof(PanelBlockQ6_K) / kRows];
  for (std::size_t b = 0; b < n_blocks; ++b) {
    for (std::size_t row = 0; row < n_rows; ++row) {
      const std::byte* file = rows + (row * n_blocks + b) * block;
      if (dtype == DType::Q6_K) {
        std::memcpy(regrouped, file, block);
        regroup_block_q6_k(file, regrouped);
        file = regrouped;
      }
      move_block<Way::to_panel>(runs, file, panel + b * kRows * block, row);
    }
  }
}

}  // namespace

std::span<const UnitRun> arrangement(DType dtype) noexcept {
  switch (dtype) {
#define IMP_RETURN_RUNS(name, Type, isa) \
  case DType::Type:                      \
    return kUnits##Type;
    IMP_QUANTIZED_TYPES(IMP_RETURN_RUNS, any)
    IMP_RETURN_RUNS(f8_e4m3, F8_E4M3, any)
#undef IMP_RETURN_RUNS
    default:
      return {};
  }
}

void pack_blocks(DType dtype, const std::byte* rows, int n_rows, std::int64_t n_blocks, std::byte* panel) noexcept {
  const auto blocks = static_cast<std::size_t>(n_blocks);
  if (n_rows < static_cast<int>(kRows)) return pack_part(dtype, rows, static_cast<std::size_t>(n_rows), blocks, panel);
  const std::span<const UnitRun> runs = arrangement(dtype);
  const std::size_t block = bytes_of(runs);
  for (std::size_t b = 0; b < blocks; ++b, rows += block, panel += kRows * block) {
    transpose_block(runs, rows, blocks * block, panel);
    if (dtype == DType::Q6_K) regroup_lines_q6_k(panel);
  }
}

void unpack_blocks(DType dtype, const std::byte* panel, std::int64_t row, std::int64_t n_blocks,
                   std::byte* out) noexcept {
  const std::span<const UnitRun> runs = arrangement(dtype);
  const std::size_t block = bytes_of(runs);
  for (std::size_t b = 0; b < static_cast<std::size_t>(n_blocks); ++b) {
    move_block<Way::to_file>(runs, out + b * block, panel + b * kRows * block, static_cast<std::size_t>(row));
    if (dtype == DType::Q6_K) ungroup_block_q6_k(out + b * block);
  }
}

}  // namespace imp::cpu
