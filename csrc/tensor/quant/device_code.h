// Marks what a CUDA compiler builds for the device: with it the device's alone, without it plain C++.
#pragma once

#ifdef __CUDACC__
#define IMP_QUANT_CODE __device__ __forceinline__
#define IMP_QUANT_TABLE static __device__ constexpr
#else
#define IMP_QUANT_CODE [[gnu::always_inline]] inline
#define IMP_QUANT_TABLE inline constexpr
#endif
