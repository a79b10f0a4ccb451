// The CUDA runtime's errors as values.
#pragma once

#include <cuda_runtime.h>

#include "backend/cuda/device/status.h"

namespace imp::cuda {

inline Status to_status(cudaError_t error) {
  if (error == cudaSuccess) return {};
  // Clears what can be cleared. A sticky error stays, and every later call reports it.
  cudaGetLastError();
  StatusKind kind = StatusKind::fault;
  if (error == cudaErrorMemoryAllocation) kind = StatusKind::no_memory;
  if (error == cudaErrorNoDevice || error == cudaErrorInsufficientDriver) kind = StatusKind::absent;
  return {kind, static_cast<int>(error), cudaGetErrorName(error)};
}

}  // namespace imp::cuda
