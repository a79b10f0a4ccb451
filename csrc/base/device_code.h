// Marks functions for the device. A CUDA compiler compiles them for the device; a C++ compiler sees plain functions.
#pragma once

#ifdef __CUDACC__
#define IMP_DEVICE_CODE __device__ __forceinline__
#define IMP_DEVICE_TABLE static __device__ constexpr
#else
#define IMP_DEVICE_CODE [[gnu::always_inline]] inline
#define IMP_DEVICE_TABLE inline constexpr
#endif
