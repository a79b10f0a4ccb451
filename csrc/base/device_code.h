// Marks code that serves the CPU and, under a CUDA compiler, the device: there the device's alone, else plain C++.
#pragma once

#ifdef __CUDACC__
#define IMP_DEVICE_CODE __device__ __forceinline__
#define IMP_DEVICE_TABLE static __device__ constexpr
#else
#define IMP_DEVICE_CODE [[gnu::always_inline]] inline
#define IMP_DEVICE_TABLE inline constexpr
#endif
