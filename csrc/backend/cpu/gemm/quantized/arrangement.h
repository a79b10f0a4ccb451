// The order of a quantized block's bytes in a file's row and in a panel of 16 rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/dtype.h"

namespace imp::cpu {

// A change of a unit's bytes.
enum class Change : std::uint8_t {
  none,
  plus_128,     // to each byte
  spread_bits,  // bit 4j + b of four bytes becomes bit 8b + j
};

// A run of equal units in a block of the file. The panel block has the runs in the listed order, and each unit 16
// times, once per row.
struct UnitRun {
  int file_offset;
  int unit_bytes;  // 1, 2 or 4
  int n_units;
  Change change = Change::none;
};

// Empty for types without panel blocks.
std::span<const UnitRun> arrangement(DType dtype) noexcept;

// Moves n_blocks blocks of each of n_rows (1 to 16) consecutive rows of the file into a zeroed panel.
void pack_blocks(DType dtype, const std::byte* rows, int n_rows, std::int64_t n_blocks, std::byte* panel) noexcept;

// The bytes of one row of a panel in the file's format.
void unpack_blocks(DType dtype, const std::byte* panel, std::int64_t row, std::int64_t n_blocks,
                   std::byte* out) noexcept;

}  // namespace imp::cpu
