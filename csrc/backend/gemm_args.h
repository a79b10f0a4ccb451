// The arguments of a CPU matrix kernel: plain data, so that files compiled for one instruction set can include it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace imp {

enum class DType : std::uint8_t;

struct GemmArgs {
  const std::byte* weight = nullptr;  // in the kernel's layout; never written
  DType weight_type = {};
  const std::byte* activations = nullptr;  // in the kernel's activation format, m rows; never written
  std::ptrdiff_t activation_stride = 0;    // bytes from one row to the next, a multiple of 4
  float* out = nullptr;                    // row-major, m rows; only the outputs [n_begin, n_end) of each
  std::ptrdiff_t out_stride = 0;           // floats from one row to the next
  int m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t n_begin = 0;  // this call computes outputs [n_begin, n_end); both are multiples of 16 or n
  std::int64_t n_end = 0;
  int prefetching_rows = 1;      // from so many rows on, quantized kernels prefetch weights
  std::byte* scratch = nullptr;  // scratch_bytes(problem, m), this thread's own, 64-byte aligned
};

}  // namespace imp
