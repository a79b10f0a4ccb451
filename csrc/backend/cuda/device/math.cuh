// exp, tanh and sigmoid with the CPU's operations one by one, and so with its bits.
#pragma once

#include "backend/cuda/device/arch.cuh"

namespace imp::cuda {

// x · 2^n for integers n in [-252, 254] and x in [0.5, 2]; 0 if that would be subnormal. In two steps, because 2^n has
// no float for n > 127 or n < -126.
__device__ __forceinline__ float times_power_of_two(float x, int n) {
  const int half = n >> 1;
  const float product = x * __int_as_float((half + 127) << 23) * __int_as_float((n - half + 127) << 23);
  return fabsf(product) < 0x1p-126F ? 0.0F : product;
}

// e^x within 1.5 ulp; 0 where the result would be subnormal, infinity above 88.73, NaN for NaN. Non-decreasing.
__device__ __forceinline__ float exp_of(float x) {
  if (x != x) return x;
  x = x < -104.0F ? -104.0F : x;
  x = x > 89.5F ? 89.5F : x;
  const float n = rintf(x * 0x1.715476p+0F);  // x / ln 2
  float r = fmaf(n, -0x1.62e400p-1F, x);      // ln 2 in two parts; n times the first is exact
  r = fmaf(n, -0x1.7f7d1cp-20F, r);
  float p = 0.00138145399F;
  p = fmaf(p, r, 0.00836874513F);
  p = fmaf(p, r, 0.0416683908F);
  p = fmaf(p, r, 0.166665204F);
  p = fmaf(p, r, 0.499999934F);
  const float mantissa = fmaf(p, r * r, r) + 1.0F;
  return times_power_of_two(mantissa, static_cast<int>(n));
}

// 1 / (1 + e^-x)
__device__ __forceinline__ float sigmoid_of(float x) {
  return 1.0F / (1.0F + exp_of(-x));
}

// Within 3 ulp. Small arguments use a polynomial, since 1 - 2 / (e^2x + 1) would cancel.
__device__ __forceinline__ float tanh_of(float x) {
  const float magnitude = fabsf(x);
  if (magnitude < 0.625F) {
    const float square = x * x;
    float p = 0.00206466512F;
    p = fmaf(p, square, -0.00809196832F);
    p = fmaf(p, square, 0.0216663469F);
    p = fmaf(p, square, -0.0539405632F);
    p = fmaf(p, square, 0.133331579F);
    p = fmaf(p, square, -0.333333296F);
    return fmaf(p, square * x, x);
  }
  return copysignf(1.0F - 2.0F / (exp_of(magnitude + magnitude) + 1.0F), x);
}

// The activation of a gate.
__device__ __forceinline__ float silu_of(float x) {
  return x / (1.0F + exp_of(-x));
}
// 0.5 · x · (1 + tanh(sqrt(2/π) · (x + 0.044715 · x³)))
__device__ __forceinline__ float gelu_tanh_of(float x) {
  const float cubic = fmaf(x * x * x, 0.044715F, x);
  return 0.5F * x * (1.0F + tanh_of(cubic * 0.797884561F));
}

}  // namespace imp::cuda
