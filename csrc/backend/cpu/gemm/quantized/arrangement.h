// How the bytes of a quantized block move between a file's rows and a panel of 16 rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/dtype.h"

namespace imp::cpu {

// What happens to a unit's bytes on the way.
enum class Change : std::uint8_t {
  none,
  plus_128,     // to each byte
  spread_bits,  // bit 4j + b of four bytes becomes bit 8b + j
};

// A run of equal units within a block of the file. In the panel block the runs follow each other as they are listed,
// and each unit stands 16 times, once for each row.
struct Run {
  int file_offset;
  int unit_bytes;  // 1, 2 or 4
  int n_units;
  Change change = Change::none;
};

// Empty for types that have no panel blocks.
std::span<const Run> arrangement(DType dtype) noexcept;

// Moves n_blocks blocks of each of n_rows (1 to 16) consecutive rows of the file into a panel, which is zero before.
void pack_blocks(DType dtype, const std::byte* rows, int n_rows, std::int64_t n_blocks, std::byte* panel) noexcept;

// The file's bytes of one row of a panel.
void unpack_blocks(DType dtype, const std::byte* panel, std::int64_t row, std::int64_t n_blocks,
                   std::byte* out) noexcept;

}  // namespace imp::cpu
