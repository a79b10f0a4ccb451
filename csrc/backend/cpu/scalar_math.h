// sin, cos and log in double precision: the same operations, and so the same bits, on every instruction set.
#pragma once

#include <cstdint>

namespace imp::cpu {
namespace {

struct SinCos {
  double sin, cos;
};

// Within 2e-16 for |x| <= 2^24. Without branches, so that a loop over angles can be vectorized.
inline SinCos sin_cos(double x) {
  // The quadrant is rounded by adding a number whose last place is 1; its low bits are then the quadrant itself.
  constexpr double round = 0x1.8p52;
  const double shifted = __builtin_fma(x, 0x1.45f306dc9c883p-1, round);  // x · 2/π
  std::uint64_t quadrant;
  __builtin_memcpy(&quadrant, &shifted, sizeof quadrant);
  const double n = shifted - round;
  // π/2 in two parts. The first step is exact: with n below 2^24 all terms are multiples of 2^-52.
  double r = __builtin_fma(-n, 0x1.921fb54442d18p+0, x);
  r = __builtin_fma(-n, 0x1.1a62633145c07p-54, r);

  const double z = r * r;  // Taylor series: on |r| <= π/4 what is left out is below 5e-17
  double s = -1.0 / 1307674368000.0;
  s = __builtin_fma(s, z, 1.0 / 6227020800.0);
  s = __builtin_fma(s, z, -1.0 / 39916800.0);
  s = __builtin_fma(s, z, 1.0 / 362880.0);
  s = __builtin_fma(s, z, -1.0 / 5040.0);
  s = __builtin_fma(s, z, 1.0 / 120.0);
  s = __builtin_fma(s, z, -1.0 / 6.0);
  const double sine = __builtin_fma(s, z * r, r);
  double c = 1.0 / 20922789888000.0;
  c = __builtin_fma(c, z, -1.0 / 87178291200.0);
  c = __builtin_fma(c, z, 1.0 / 479001600.0);
  c = __builtin_fma(c, z, -1.0 / 3628800.0);
  c = __builtin_fma(c, z, 1.0 / 40320.0);
  c = __builtin_fma(c, z, -1.0 / 720.0);
  c = __builtin_fma(c, z, 1.0 / 24.0);
  c = __builtin_fma(c, z, -0.5);
  const double cosine = __builtin_fma(c, z, 1.0);

  const bool swapped = (quadrant & 1U) != 0;
  const double a = swapped ? cosine : sine;
  const double b = swapped ? sine : cosine;
  return {(quadrant & 2U) != 0 ? -a : a, ((quadrant + 1U) & 2U) != 0 ? -b : b};
}

// Natural logarithm of a positive normal number, within 4e-16 relative.
inline double log(double x) {
  std::uint64_t word;
  __builtin_memcpy(&word, &x, sizeof word);
  // The mantissa is brought into [√½, √2) by counting the exponent from √½.
  constexpr std::uint64_t root_half = 0x3FE6A09E667F3BCDU;
  const auto exponent = static_cast<std::int64_t>(word - root_half) >> 52;
  word -= static_cast<std::uint64_t>(exponent) << 52;
  double mantissa;
  __builtin_memcpy(&mantissa, &word, sizeof mantissa);
  // log m = 2 atanh s, s = (m - 1) / (m + 1), |s| <= 0.172: what the series leaves out is below 2e-17 of it
  const double s = (mantissa - 1.0) / (mantissa + 1.0);
  const double z = s * s;
  double p = 1.0 / 19.0;
  p = __builtin_fma(p, z, 1.0 / 17.0);
  p = __builtin_fma(p, z, 1.0 / 15.0);
  p = __builtin_fma(p, z, 1.0 / 13.0);
  p = __builtin_fma(p, z, 1.0 / 11.0);
  p = __builtin_fma(p, z, 1.0 / 9.0);
  p = __builtin_fma(p, z, 1.0 / 7.0);
  p = __builtin_fma(p, z, 1.0 / 5.0);
  p = __builtin_fma(p, z, 1.0 / 3.0);
  const double log_mantissa = 2.0 * __builtin_fma(p, z * s, s);
  const double e = static_cast<double>(exponent);
  // ln 2 in two parts, the first with few enough bits that its product with e is exact
  return __builtin_fma(e, 0x1.62e42fefa3800p-1, __builtin_fma(e, 0x1.ef35793c76730p-45, log_mantissa));
}

}  // namespace
}  // namespace imp::cpu
