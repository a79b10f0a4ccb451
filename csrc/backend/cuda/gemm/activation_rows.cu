// Prepares activations for the kernels on tile16.
#include "backend/cuda/device/arch.cuh"
#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/device/warp.cuh"
#include "backend/cuda/gemm/activation_elements.cuh"
#include "backend/cuda/gemm/activation_rows.h"
#include "base/error.h"

namespace imp::cuda {

constexpr int kPrepareThreads = static_cast<int>(kTileDepth);
static __device__ __forceinline__ float element_of(Rows x, int row, int i) {
  return i < x.width ? x.data[row * x.stride + i] : 0.0F;
}
// One thread block for each row and each tile along k.
static __global__ void __launch_bounds__(kPrepareThreads)
    quantize_rows_kernel(Rows x, std::byte* out, std::int64_t row_bytes) {
  const int row = static_cast<int>(blockIdx.x);
  const int i = static_cast<int>(blockIdx.y) * kPrepareThreads + static_cast<int>(threadIdx.x);
  put_quantized(element_of(x, row, i), i, static_cast<int>(gridDim.y) * kPrepareThreads, out + row * row_bytes);
}

// The power of two that scales `largest` below 2^14, and to at least 2^13 unless it is tiny. Clamped so that its
// inverse exists.
static __device__ __forceinline__ int factor_exponent(int largest_bits) {
  const int exponent = (largest_bits >> 23) - 127 - 13;
  return exponent < -126 ? -126 : exponent;
}

constexpr int place_of(int i, bool is_even_odd) {
  return is_even_odd ? i / 16 * 16 + i % 2 * 8 + i % 16 / 2 : i;
}

// One thread block per row.
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

// One thread block for each row and each tile along k.
static __global__ void __launch_bounds__(kPrepareThreads)
    round_rows_kernel(Rows x, std::byte* out, std::int64_t row_bytes) {
  const int row = static_cast<int>(blockIdx.x);
  const int i = static_cast<int>(blockIdx.y) * kPrepareThreads + static_cast<int>(threadIdx.x);
  put_rounded(element_of(x, row, i), i, out + row * row_bytes);
}

void prepare_rows(Stream& stream, Rows x, ActivationFormat format, std::byte* out) {
  const std::int64_t row_bytes = activation_row_bytes(format, x.width), k_padded = padded_depth(x.width);
  const auto n_rows = static_cast<unsigned>(x.n_rows);
  const LaunchShape by_tile = {.grid = {n_rows, static_cast<unsigned>(k_padded / kTileDepth)},
                               .block = kPrepareThreads};
  const LaunchShape by_row = {.grid = n_rows, .block = kPrepareThreads};
  switch (format) {
    case ActivationFormat::q8_rows:
      return launch(stream, quantize_rows_kernel, by_tile, x, out, row_bytes);
    case ActivationFormat::f16_rows:
      return launch(stream, scale_rows_kernel<false>, by_row, x, out, row_bytes, k_padded);
    case ActivationFormat::f16_even_odd:
      return launch(stream, scale_rows_kernel<true>, by_row, x, out, row_bytes, k_padded);
    case ActivationFormat::bf16_rows:
      return launch(stream, round_rows_kernel, by_tile, x, out, row_bytes);
    default:
      IMP_CHECK(false);
  }
}

}  // namespace imp::cuda
