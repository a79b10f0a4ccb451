// Rows of activations as the kernels over tile16 read them.
//
// A row has k_padded elements, k rounded up to whole tiles; those beyond k are zero.
//   q8_rows       int8[k_padded], then of each 32 elements a Q8Block: element = int8 · scale
//   f16_rows      float16[k_padded], then a float and 12 bytes of nothing: element = float16 · that power of two
//   f16_even_odd  likewise; of each 16 elements first those of even numbers
//   bf16_rows     bfloat16[k_padded]
//   f32           the Rows themselves
// What is not a finite number is not lost: a block's scale is NaN where one of its elements is infinite or NaN, a
// row's factor likewise, and a bfloat16 is what its element is.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cuda/device/stream.h"
#include "backend/gemm.h"
#include "backend/rows.h"

namespace imp::cuda {

// Of 32 elements of q8_rows.
struct Q8Block {
  float scale;
  std::int16_t sums[2];  // of the first and of the last 16 int8
};
static_assert(sizeof(Q8Block) == 8);
inline constexpr int kQ8Elements = 32;
inline constexpr std::int64_t kF16FactorBytes = 16;  // with what fills it up

constexpr std::int64_t padded_depth(std::int64_t k) noexcept {
  return (k + kTileDepth - 1) / kTileDepth * kTileDepth;
}

// Bytes of a row of k elements; 0 where there is nothing to prepare.
constexpr std::int64_t activation_row_bytes(ActivationFormat format, std::int64_t k) noexcept {
  const std::int64_t n = padded_depth(k);
  switch (format) {
    case ActivationFormat::q8_rows:
      return n + n / kQ8Elements * static_cast<std::int64_t>(sizeof(Q8Block));
    case ActivationFormat::f16_rows:
    case ActivationFormat::f16_even_odd:
      return 2 * n + kF16FactorBytes;
    case ActivationFormat::bf16_rows:
      return 2 * n;
    default:
      return 0;
  }
}

// Where rows are written in a format along with their making; f32: nowhere.
struct PreparedRows {
  ActivationFormat format = ActivationFormat::f32;
  std::byte* rows = nullptr;  // activation_row_bytes apart
};
// Formats that can be: no element of theirs looks further than its block.
constexpr bool is_written_along(ActivationFormat format) noexcept {
  return format == ActivationFormat::q8_rows || format == ActivationFormat::bf16_rows;
}

// Writes the rows of x to `out`, activation_row_bytes apart. A row's bytes depend on that row alone.
void prepare_rows(Stream& stream, Rows x, ActivationFormat format, std::byte* out);

}  // namespace imp::cuda
