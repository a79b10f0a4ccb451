// The formats of activations for the kernels on tile16.
//
// A row has k_padded elements, k rounded up to whole tiles; elements beyond k are zero.
//   q8_rows       int8[k_padded], then a Q8Block for each 32 elements: element = int8 · scale
//   f16_rows      float16[k_padded], then a float and 12 bytes of padding: element = float16 · that power of two
//   f16_even_odd  the same, but in each 16 elements the even ones come first
//   bf16_rows     bfloat16[k_padded]
//   f32           the Rows themselves
// Non-finite values are not lost: the scale of a block is NaN if one of its elements is infinite or NaN, and so is the
// factor of a row. bfloat16 keeps them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cuda/device/stream.h"
#include "backend/gemm.h"
#include "backend/rows.h"
#include "base/ceil_div.h"

namespace imp::cuda {

// For 32 elements of q8_rows.
struct Q8Block {
  float scale;
  std::int16_t sums[2];  // of the first and the last 16 int8
};
static_assert(sizeof(Q8Block) == 8);
inline constexpr int kQ8Elements = 32;
inline constexpr std::int64_t kF16FactorBytes = 16;  // with its padding

constexpr std::int64_t padded_depth(std::int64_t k) noexcept {
  return round_up(k, kTileDepth);
}

// Bytes of a row of k elements; 0 if nothing is prepared.
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

// The buffer in which an op also writes its rows, in a format; f32: none.
struct PreparedRows {
  ActivationFormat format = ActivationFormat::f32;
  std::byte* rows = nullptr;  // activation_row_bytes apart
};
// Only formats in which an element depends on its block alone.
constexpr bool can_be_fused(ActivationFormat format) noexcept {
  return format == ActivationFormat::q8_rows || format == ActivationFormat::bf16_rows;
}

// Writes the rows of x to `out`, activation_row_bytes apart. A row's bytes depend only on that row.
void prepare_rows(Stream& stream, Rows x, ActivationFormat format, std::byte* out);

}  // namespace imp::cuda
