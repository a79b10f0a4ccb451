// Vectors of weights' codes and their exact integer products with activations, for every instruction set, as lanes.h is
// for floats. The compiler's macros of the including file select the implementation.
//
//   Codes                     4 unsigned bytes of each of 16 rows
//   place<from, n, to>(c)     bits [from, from + n) of each byte, moved to [to, to + n); the others zero
//   look_up(levels, c)        levels[byte], bytes below 16
//   Operand<range>            codes as the multiplication needs them, prepared once for all rows of activations
//   Dots<range, part, n>      16 sums of (code - zero point) · activation over a part of 32 elements, 4 at a time; n
//                             panels multiply the same activations
//   PairOperand, PairDots     the same for two rows of activations, 8 elements at a time; only where kByPairs
#pragma once

#include "backend/cpu/gemm/quantized/activation_block.h"
#include "backend/cpu/gemm/quantized/panel_blocks.h"
#include "backend/cpu/lanes/lanes.h"

namespace imp::cpu {
namespace {

// The range of stored codes: 0 to `most`; the value is code - zero_point.
struct CodeRange {
  int most;
  int zero_point;  // 0 or a power of two up to 128
};

// The part of a group of 32 elements that has its own scale.
enum class Part { whole, first_half, last_half };

// Whether so many rows of activations are multiplied in pairs.
#if defined(__ARM_FEATURE_MATMUL_INT8)
template <int n_rows>
inline constexpr bool kByPairs = n_rows > 1;
#else
template <int n_rows>
inline constexpr bool kByPairs = false;
#endif

// -zero_point · the sum of a part's activation codes.
template <CodeRange range, Part part>
inline std::int32_t bias_of(const ActivationBlock& x) {
  constexpr int kStored = part == Part::whole ? 128 : 32;
  static_assert(range.zero_point > 0 && kStored % range.zero_point == 0);
  const std::int32_t stored = part == Part::whole ? x.bias : x.half_biases[part == Part::last_half];
  return stored / (kStored / range.zero_point);  // exact
}

inline std::int32_t four_codes(const ActivationBlock& x, int j) {
  std::int32_t four;
  __builtin_memcpy(&four, x.codes + 4 * j, sizeof four);
  return four;
}

}  // namespace
}  // namespace imp::cpu

#if defined(__AVX512VNNI__)
#include "backend/cpu/gemm/quantized/codes_avx512vnni.h"  // IWYU pragma: export
#elif defined(__AVX2__)
#include "backend/cpu/gemm/quantized/codes_avx2.h"  // IWYU pragma: export
#elif defined(__aarch64__) && defined(__ARM_FEATURE_DOTPROD)
#include "backend/cpu/gemm/quantized/codes_neon.h"  // IWYU pragma: export
#else
#include "backend/cpu/gemm/quantized/codes_portable.h"  // IWYU pragma: export
#endif
