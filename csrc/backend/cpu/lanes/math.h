// exp, tanh, erf and sigmoid on Lanes: polynomials with the same operations and bits on every instruction set.
#pragma once

#include "backend/cpu/lanes/lanes.h"

namespace imp::cpu {
namespace {

inline Lanes absolute(Lanes x) {
  return from_bits(bits(x) & broadcast_int(0x7FFFFFFF));
}
inline Lanes negative(Lanes x) {
  return from_bits(bits(x) ^ broadcast_int(INT32_MIN));
}
// The magnitude of x with the sign of y.
inline Lanes copy_sign(Lanes x, Lanes y) {
  return from_bits((bits(x) & broadcast_int(0x7FFFFFFF)) | (bits(y) & broadcast_int(INT32_MIN)));
}

// x · 2^n for integers n in [-252, 254], where x is in [0.5, 2]; 0 where that would be subnormal.
inline Lanes times_power_of_two(Lanes x, Lanes n) {
#if defined(__AVX512F__)
  return {_mm512_scalef_ps(x.v, n.v)};
#else
  // In two steps, because 2^n has no float for n > 127 or n < -126.
  const auto power = [](IntLanes k) { return from_bits(shift_left<23>(k + broadcast_int(127))); };
  const IntLanes exponent = to_int(n);
  const IntLanes half = shift_right<1>(exponent);
  return x * power(half) * power(exponent - half);
#endif
}

// e^x within 1.5 ulp; 0 if the result would be subnormal, infinity above 88.73, NaN for NaN. Monotonic. Always inlined,
// because a call passes its lanes through memory.
[[gnu::always_inline]] inline Lanes exp(Lanes x) {
  // Outside the bounds the result is already 0 or infinity. NaN passes because it is the second operand.
  x = min(broadcast(89.5F), max(broadcast(-104.0F), x));
  const Lanes n = round_even(x * broadcast(0x1.715476p+0F));  // x / ln 2
  Lanes r = fma(n, broadcast(-0x1.62e400p-1F), x);            // ln 2 in two parts; n times the first is exact
  r = fma(n, broadcast(-0x1.7f7d1cp-20F), r);
  // Minimax polynomial of (e^r - 1 - r) / r² on |r| <= ln 2 / 2; relative error in e^r: 3.1e-9.
  Lanes p = broadcast(0.00138145399F);
  p = fma(p, r, broadcast(0.00836874513F));
  p = fma(p, r, broadcast(0.0416683908F));
  p = fma(p, r, broadcast(0.166665204F));
  p = fma(p, r, broadcast(0.499999934F));
  const Lanes mantissa = fma(p, r * r, r) + broadcast(1.0F);
  return times_power_of_two(mantissa, n);
}

// 1 / (1 + e^-x)
inline Lanes sigmoid(Lanes x) {
  return broadcast(1.0F) / (broadcast(1.0F) + exp(negative(x)));
}

// Within 3 ulp. Small arguments use a polynomial, since 1 - 2 / (e^2x + 1) would cancel.
inline Lanes tanh(Lanes x) {
  const Lanes magnitude = absolute(x);
  const Lanes square = x * x;
  // Minimax polynomial of (tanh x - x) / x³ in x² on |x| <= 0.65; relative error in tanh x: 2.5e-10.
  Lanes p = broadcast(0.00206466512F);
  p = fma(p, square, broadcast(-0.00809196832F));
  p = fma(p, square, broadcast(0.0216663469F));
  p = fma(p, square, broadcast(-0.0539405632F));
  p = fma(p, square, broadcast(0.133331579F));
  p = fma(p, square, broadcast(-0.333333296F));
  const Lanes small = fma(p, square * x, x);
  const Lanes one = broadcast(1.0F);
  const Lanes large = one - broadcast(2.0F) / (exp(magnitude + magnitude) + one);
  return select(less(magnitude, broadcast(0.625F)), small, copy_sign(large, x));
}

// Within 2 ulp; NaN for NaN. Small arguments use a polynomial, since 1 - erfc(x) would cancel.
inline Lanes erf(Lanes x) {
  const Lanes magnitude = absolute(x);
  const Lanes square = x * x;
  // Minimax polynomial of (erf x - x) / x in x² on |x| <= 0.82; relative error in erf x: 4.1e-9.
  Lanes p = broadcast(-0.00064478273F);
  p = fma(p, square, broadcast(0.0050721113F));
  p = fma(p, square, broadcast(-0.026814086F));
  p = fma(p, square, broadcast(0.11282973F));
  p = fma(p, square, broadcast(-0.3761259F));
  p = fma(p, square, broadcast(0.12837917F));
  const Lanes small = fma(p, x, x);
  // Minimax polynomial of -ln(1 - erf x) on 0.78 <= x <= 4; relative error in erf x: 2.8e-9. From 3.92 on erf x is 1.
  const Lanes bounded = min(broadcast(4.0F), magnitude);
  Lanes q = broadcast(-0.00021056242F);
  q = fma(q, bounded, broadcast(0.0031820391F));
  q = fma(q, bounded, broadcast(-0.022761172F));
  q = fma(q, bounded, broadcast(0.1049992F));
  q = fma(q, bounded, broadcast(0.636013F));
  q = fma(q, bounded, broadcast(1.1283417F));
  q = fma(q, bounded, broadcast(0.00004131327F));
  const Lanes large = broadcast(1.0F) - exp(negative(q));
  return select(less(magnitude, broadcast(0.8F)), small, copy_sign(large, x));
}

}  // namespace
}  // namespace imp::cpu
