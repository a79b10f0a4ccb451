// Prepares single elements of activations, for formats in which an element depends only on its block.
#pragma once

#include "backend/cuda/device/arch.cuh"
#include "backend/cuda/device/warp.cuh"
#include "backend/cuda/gemm/activation_rows.h"

namespace imp::cuda {

constexpr int kInfinityBits = 0x7F800000;
constexpr int kNanBits = 0x7FC00000;

// The bits of |x| have its order, with infinity and NaN above all. So NaN is not lost, as it would be in a maximum of
// floats.
__device__ __forceinline__ int magnitude_bits(float x) {
  return __float_as_int(x) & 0x7FFFFFFF;
}

// Element i of a row of q8_rows. The lanes of a warp have the elements of a block, in order. The CPU's operations, with
// its bits except for subnormal numbers.
__device__ __forceinline__ void put_quantized(float value, int i, int k_padded, std::byte* row) {
  constexpr int kSmallest = (127 - 119) << 23;  // the bits of 2^-119: below it 127 / x could be infinite
  const int max_bits = warp_max(magnitude_bits(value));
  const bool is_scaled = max_bits >= kSmallest && max_bits < kInfinityBits;
  const float largest = __int_as_float(max_bits);
  const int code = is_scaled ? static_cast<int>(rintf(value * (127.0F / largest))) : 0;
  int sum = code;
  for (int bits = 8; bits > 0; bits /= 2) sum += __shfl_xor_sync(kAllLanes, sum, bits);
  const int other_sum = __shfl_xor_sync(kAllLanes, sum, 16);
  row[i] = static_cast<std::byte>(code);
  if (i % kQ8Elements != 0) return;
  const float unscaled = __int_as_float(max_bits >= kInfinityBits ? kNanBits : 0);
  reinterpret_cast<Q8Block*>(row + k_padded)[i / kQ8Elements] = {
      is_scaled ? largest / 127.0F : unscaled, {static_cast<std::int16_t>(sum), static_cast<std::int16_t>(other_sum)}};
}

// An element of bf16_rows.
__device__ __forceinline__ void put_rounded(float value, int i, std::byte* row) {
  reinterpret_cast<std::uint16_t*>(row)[i] = arch::float_to_bf16(value);
}

}  // namespace imp::cuda
