// The matrix kernels' functions for the list. Each takes one type of weights in tile16, except the last.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cuda/gemm/tiles.h"
#include "backend/gemm.h"
#include "backend/gemm_launch.h"

// Declares the function of a listed kernel, an instance of the template launch_KERNEL.
#define IMP_DECLARE_LAUNCH(name, Type, kernel) void launch_##name##_##kernel(const GemmLaunch& launch);
#define IMP_DEFINE_LAUNCH(name, Type, kernel)               \
  void launch_##name##_##kernel(const GemmLaunch& launch) { \
    launch_##kernel<DType::Type>(launch);                   \
  }

namespace imp::cuda {

// Up to four rows of q8_rows. dp4a_shared_bytes is the shared memory of a block.
std::size_t dp4a_shared_bytes(std::int64_t k) noexcept;
IMP_INTEGER_TILE_TYPES(IMP_DECLARE_LAUNCH, dp4a)

// Any number of rows of q8_rows, with the same bits.
IMP_INTEGER_TILE_TYPES(IMP_DECLARE_LAUNCH, imma)

// Any number of rows of f16_even_odd, f16_rows and bf16_rows.
IMP_FLOAT_TILE_TYPES(IMP_DECLARE_LAUNCH, mma)

// Any number of rows, tuned for many: f16_even_odd for quantized types and F8_E4M3, f16_rows for F16, bf16_rows for
// BF16.
IMP_TILE_TYPES(IMP_DECLARE_LAUNCH, hmma)

// The same formats and the same sums, without experts.
IMP_TILE_TYPES(IMP_DECLARE_LAUNCH, wgmma)

// The same formats, and faster for many rows. Never for experts.
IMP_TILE_TYPES(IMP_DECLARE_LAUNCH, cublaslt)
// The scratch, which is bounded for any weight.
std::size_t cublaslt_scratch_bytes(const GemmProblem& problem, int m);
void prepare_cublaslt(const GemmProblem& problem, void* stream);

// Any type of weights in the file's layout.
void launch_reference(const GemmLaunch& launch);

}  // namespace imp::cuda
