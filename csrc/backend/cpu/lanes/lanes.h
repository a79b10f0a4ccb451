// Sixteen floats at a time: a portable SIMD type, as in Highway or std::simd, with equal bits on every instruction set.
//
// The file that includes this is compiled for one instruction set, and the compiler's macros select the implementation.
// There are only IEEE operations (no reciprocal or root estimates), and only fma() fuses. All names are in anonymous
// namespaces and no std template is used, so that the linker never replaces a narrow copy with a wide one.
//
//   Lanes      16 × float32      load, store, + − × ÷, fma(a, b, c) = a·b + c, sqrt, min, max, round_even …
//   IntLanes   16 × int32        wrapping + − ×, bitwise, shifts, 16-bit halves, bits(x) and from_bits(i)
//   Mask       16 × bool         less(a, b) …, select(mask, a, b) = mask ? a : b
//
// min and max are `a < b ? a : b` and `a > b ? a : b` per lane: the second operand if either is NaN. A denormal operand
// may come out unchanged or as zero. Sums and maxima over lanes fold the upper half onto the lower: 16, 8, 4, 2, 1.
#pragma once

#include <cstddef>
#include <cstdint>

namespace imp::cpu {
namespace {

constexpr int kLanes = 16;

// Bytes of the first n floats, 0 to 15, in a form whose upper bound the compiler can see.
inline std::size_t bytes_of_first(int n) {
  return static_cast<std::size_t>(n) % kLanes * sizeof(float);
}

}  // namespace
}  // namespace imp::cpu

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
#include "backend/cpu/lanes/lanes_avx512.h"  // IWYU pragma: export
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include "backend/cpu/lanes/lanes_avx2.h"  // IWYU pragma: export
#elif defined(__aarch64__) && defined(__ARM_NEON)
#include "backend/cpu/lanes/lanes_neon.h"  // IWYU pragma: export
#else
#include "backend/cpu/lanes/lanes_portable.h"  // IWYU pragma: export
#endif

namespace imp::cpu {
namespace {

// bfloat16 storage: the upper half of a float32, rounded to nearest even; NaN stays NaN.
inline IntLanes round_bf16(Lanes x) {  // in the upper halves; the lower ones are undefined
  const IntLanes word = bits(x);
  const IntLanes odd = shift_right_logical<16>(word) & broadcast_int(1);
  const IntLanes rounded = word + broadcast_int(0x7FFF) + odd;
  const Mask is_nan = less(broadcast_int(0x7F800000), word & broadcast_int(0x7FFFFFFF));
  return select(is_nan, word | broadcast_int(0x400000), rounded);
}
inline void store_bf16(std::uint16_t* to, Lanes x) {
  store_u16(to, shift_right_logical<16>(round_bf16(x)));
}

// Fetches the line that a tile of results will be stored to. Results of many rows do not stay in the caches, and a
// store that waits for its line delays the next tile.
inline void prefetch_to_write(const float* to) {
  __builtin_prefetch(to, 1, 3);
}

// The first n lanes from memory, the others zero; n at least 0.
inline Lanes load_up_to(const float* from, int n) {
  return n >= kLanes ? load(from) : load_partial(from, n);
}

// The first n lanes to memory; n at least 0.
inline void store_up_to(float* to, Lanes x, int n) {
  if (n >= kLanes) {
    store(to, x);
  } else {
    store_partial(to, x, n);
  }
}

}  // namespace
}  // namespace imp::cpu
