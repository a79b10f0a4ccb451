// Preparation of activations for the kernels over tile16: the device's side.
#pragma once

#include "backend/cuda/arch.cuh"
#include "backend/cuda/gemm/activation_rows.h"
#include "backend/cuda/warp.cuh"

namespace imp::cuda {

constexpr int kPrepareThreads = static_cast<int>(kTileDepth);
constexpr int kInfinityBits = 0x7F800000;
constexpr int kNanBits = 0x7FC00000;

static __device__ __forceinline__ float element_of(Rows x, int row, int i) {
  return i < x.width ? x.data[row * x.stride + i] : 0.0F;
}
// The bits of |x| order as |x| does, with infinity and NaN above all: no NaN is lost, as it would be in a maximum of
// floats.
static __device__ __forceinline__ int magnitude_bits(float x) {
  return __float_as_int(x) & 0x7FFFFFFF;
}

// A block of threads for each tile's depth of each row, a warp for 32 elements: the CPU's operations, and but for
// subnormal numbers its bits.
static __global__ void __launch_bounds__(kPrepareThreads)
    quantize_rows_kernel(Rows x, std::byte* out, std::int64_t row_bytes) {
  constexpr int kSmallest = (127 - 119) << 23;  // the bits of 2^-119: below it 127 / x could be infinite
  const int row = static_cast<int>(blockIdx.y);
  const int i = static_cast<int>(blockIdx.x) * kPrepareThreads + static_cast<int>(threadIdx.x);
  const float value = element_of(x, row, i);
  const int max_bits = warp_max(magnitude_bits(value));
  const bool is_scaled = max_bits >= kSmallest && max_bits < kInfinityBits;
  const float largest = __int_as_float(max_bits);
  const int code = is_scaled ? static_cast<int>(rintf(value * (127.0F / largest))) : 0;
  int sum = code;
  for (int bits = 8; bits > 0; bits /= 2) sum += __shfl_xor_sync(kAllLanes, sum, bits);
  const int other_sum = __shfl_xor_sync(kAllLanes, sum, 16);

  std::byte* const to = out + row * row_bytes;
  to[i] = static_cast<std::byte>(code);
  if (i % kQ8Elements != 0) return;
  const float unscaled = __int_as_float(max_bits >= kInfinityBits ? kNanBits : 0);
  auto* const blocks = reinterpret_cast<Q8Block*>(to + gridDim.x * kPrepareThreads);
  blocks[i / kQ8Elements] = {is_scaled ? largest / 127.0F : unscaled,
                             {static_cast<std::int16_t>(sum), static_cast<std::int16_t>(other_sum)}};
}

// The power of two that brings what is at most `largest` below 2^14, and the largest to at least 2^13 where it is not
// next to nothing; as a number of bits of its exponent, and no more than has an inverse.
static __device__ __forceinline__ int factor_exponent(int largest_bits) {
  const int exponent = (largest_bits >> 23) - 127 - 13;
  return exponent < -126 ? -126 : exponent;
}

constexpr int place_of(int i, bool is_even_odd) {
  return is_even_odd ? i / 16 * 16 + i % 2 * 8 + i % 16 / 2 : i;
}

// A block of threads for each row.
template <bool kIsEvenOdd>
__global__ void __launch_bounds__(kPrepareThreads)
    scale_rows_kernel(Rows x, std::byte* out, std::int64_t row_bytes, int k_padded) {
  __shared__ int maxima[kPrepareThreads / kWarpSize];
  const int row = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  int largest_bits = 0;
  for (int i = thread; i < x.width; i += kPrepareThreads) {
    const int bits = magnitude_bits(element_of(x, row, i));
    largest_bits = bits > largest_bits ? bits : largest_bits;
  }
  largest_bits = warp_max(largest_bits);
  if (thread % kWarpSize == 0) maxima[thread / kWarpSize] = largest_bits;
  __syncthreads();
  for (int warp = 0; warp < kPrepareThreads / kWarpSize; ++warp) {
    largest_bits = maxima[warp] > largest_bits ? maxima[warp] : largest_bits;
  }

  const bool is_finite = largest_bits < kInfinityBits;
  const int exponent = factor_exponent(largest_bits);
  const float inverse = is_finite ? __int_as_float((127 - exponent) << 23) : 0.0F;
  auto* const to = reinterpret_cast<std::uint16_t*>(out + row * row_bytes);
  for (int i = thread; i < k_padded; i += kPrepareThreads) {
    to[place_of(i, kIsEvenOdd)] = is_finite ? arch::float_to_f16(element_of(x, row, i) * inverse) : std::uint16_t{0};
  }
  if (thread > 0) return;
  *reinterpret_cast<float*>(to + k_padded) = __int_as_float(is_finite ? (127 + exponent) << 23 : kNanBits);
}

// A block of threads for each tile's depth of each row.
static __global__ void __launch_bounds__(kPrepareThreads)
    round_rows_kernel(Rows x, std::byte* out, std::int64_t row_bytes) {
  const int row = static_cast<int>(blockIdx.y);
  const int i = static_cast<int>(blockIdx.x) * kPrepareThreads + static_cast<int>(threadIdx.x);
  reinterpret_cast<std::uint16_t*>(out + row * row_bytes)[i] = arch::float_to_bf16(element_of(x, row, i));
}

}  // namespace imp::cuda
