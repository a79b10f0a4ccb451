// sin and cos in double precision: the operations of the CPU's, one by one, and so its bits.
#pragma once

#include "backend/cuda/arch.cuh"

namespace imp::cuda {

struct SinCos {
  double sin, cos;
};

// Within 2e-16 for |x| <= 2^24.
__device__ __forceinline__ SinCos sin_cos(double x) {
  // The quadrant is rounded by adding a number whose last place is 1; its low bits are then the quadrant itself.
  constexpr double kRound = 0x1.8p52;
  const double shifted = fma(x, 0x1.45f306dc9c883p-1, kRound);  // x · 2/π
  const auto quadrant = static_cast<unsigned long long>(__double_as_longlong(shifted));
  const double n = shifted - kRound;
  // π/2 in two parts. The first step is exact: with n below 2^24 all terms are multiples of 2^-52.
  double r = fma(-n, 0x1.921fb54442d18p+0, x);
  r = fma(-n, 0x1.1a62633145c07p-54, r);

  const double z = r * r;  // Taylor series: on |r| <= π/4 what is left out is below 5e-17
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

}  // namespace imp::cuda
