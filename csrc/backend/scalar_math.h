// sin, cos and log in double precision, with the same operations and so the same bits on every instruction set and GPU.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "base/device_code.h"

namespace imp {
// Every file that is compiled for an instruction set gets its own copy.
namespace {

struct SinCos {
  double sin, cos;
};

// Error within 2e-16 for |x| <= 2^24. No branches, so that loops over angles vectorize.
IMP_DEVICE_CODE SinCos sin_cos(double x) {
  // Adding a number whose last place is 1 rounds to the quadrant, whose value is then in the low bits.
  constexpr double round = 0x1.8p52;
  const double shifted = fma(x, 0x1.45f306dc9c883p-1, round);  // x · 2/π
  const auto quadrant = std::bit_cast<std::uint64_t>(shifted);
  const double n = shifted - round;
  // Cody-Waite reduction: π/2 in two parts. The first step is exact: with n below 2^24 all terms are multiples of
  // 2^-52.
  double r = fma(-n, 0x1.921fb54442d18p+0, x);
  r = fma(-n, 0x1.1a62633145c07p-54, r);

  const double z = r * r;  // Taylor series: the truncation error on |r| <= π/4 is below 5e-17
  double s = -1.0 / 1307674368000.0;
  s = fma(s, z, 1.0 / 6227020800.0);
  s = fma(s, z, -1.0 / 39916800.0);
  s = fma(s, z, 1.0 / 362880.0);
  s = fma(s, z, -1.0 / 5040.0);
  s = fma(s, z, 1.0 / 120.0);
  s = fma(s, z, -1.0 / 6.0);
  const double sine = fma(s, z * r, r);
  double c = 1.0 / 20922789888000.0;
  c = fma(c, z, -1.0 / 87178291200.0);
  c = fma(c, z, 1.0 / 479001600.0);
  c = fma(c, z, -1.0 / 3628800.0);
  c = fma(c, z, 1.0 / 40320.0);
  c = fma(c, z, -1.0 / 720.0);
  c = fma(c, z, 1.0 / 24.0);
  c = fma(c, z, -0.5);
  const double cosine = fma(c, z, 1.0);

  const bool swapped = (quadrant & 1U) != 0;
  const double a = swapped ? cosine : sine;
  const double b = swapped ? sine : cosine;
  return {(quadrant & 2U) != 0 ? -a : a, ((quadrant + 1U) & 2U) != 0 ? -b : b};
}

// Natural logarithm of a positive normal number, within 4e-16 relative.
IMP_DEVICE_CODE double log_of(double x) {
  const auto word = std::bit_cast<std::uint64_t>(x);
  // Moves the mantissa to [√½, √2) by counting the exponent from √½.
  constexpr std::uint64_t root_half = 0x3FE6A09E667F3BCDU;
  const auto exponent = static_cast<std::int64_t>(word - root_half) >> 52;
  const auto mantissa = std::bit_cast<double>(word - (static_cast<std::uint64_t>(exponent) << 52));
  // log m = 2 atanh s, s = (m - 1) / (m + 1), |s| <= 0.172: the truncation error is below 2e-17
  const double s = (mantissa - 1.0) / (mantissa + 1.0);
  const double z = s * s;
  double p = 1.0 / 19.0;
  p = fma(p, z, 1.0 / 17.0);
  p = fma(p, z, 1.0 / 15.0);
  p = fma(p, z, 1.0 / 13.0);
  p = fma(p, z, 1.0 / 11.0);
  p = fma(p, z, 1.0 / 9.0);
  p = fma(p, z, 1.0 / 7.0);
  p = fma(p, z, 1.0 / 5.0);
  p = fma(p, z, 1.0 / 3.0);
  const double log_mantissa = 2.0 * fma(p, z * s, s);
  const double e = static_cast<double>(exponent);
  // ln 2 in two parts; the first has so few bits that its product with e is exact.
  return fma(e, 0x1.62e42fefa3800p-1, fma(e, 0x1.ef35793c76730p-45, log_mantissa));
}

}  // namespace
}  // namespace imp
