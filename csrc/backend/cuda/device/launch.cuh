// The only function that launches kernels, and the one that calls libraries with kernels of their own.
#pragma once

#include "backend/cuda/device/cuda_status.cuh"
#include "backend/cuda/device/launch_shape.cuh"

namespace imp::cuda {

template <class... P, class... A>
void launch(Stream& stream, void (*kernel)(P...), const LaunchShape& shape, A&&... args) {
  if (!stream.is_ok() || shape.grid.x * shape.grid.y * shape.grid.z == 0) return;
  constexpr std::size_t kDefaultSharedBytes = 48 << 10;
  if (shape.shared_bytes > kDefaultSharedBytes) {
    stream.keep(to_status(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                               static_cast<int>(shape.shared_bytes))));
  }
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = static_cast<cudaStream_t>(stream.handle);
  stream.keep(to_status(cudaLaunchKernelEx(&config, kernel, static_cast<P>(args)...)));
}

// call() enqueues work on the stream and returns its status.
template <class Call>
void enqueue(Stream& stream, const Call& call) {
  if (stream.is_ok()) stream.keep(call());
}

}  // namespace imp::cuda
