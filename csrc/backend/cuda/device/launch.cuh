// The one way to launch a kernel, and to call a library that launches its own.
#pragma once

#include <cstddef>
#include <utility>

#include "backend/cuda/device/arch.cuh"
#include "backend/cuda/device/stream.h"
#include "backend/gemm_launch.h"

#ifdef __CUDACC__
#include "backend/cuda/device/cuda_status.cuh"
#else
#include "backend/cuda/emu/graph_state.h"
#endif

namespace imp::cuda {

struct LaunchShape {
  dim3 grid, block;
  std::size_t shared_bytes = 0;  // dynamic
  // Only for kernels that run arch::wait_for_predecessor() before they touch what another kernel wrote or reads.
  bool overlaps_predecessor = false;
};

inline Stream& stream_of(const GemmLaunch& launch) noexcept {
  return *static_cast<Stream*>(launch.stream);
}

#ifdef __CUDACC__

template <class... P, class... A>
void launch(Stream& stream, void (*kernel)(P...), const LaunchShape& shape, A&&... args) {
  if (!stream.is_ok() || shape.grid.x * shape.grid.y * shape.grid.z == 0) return;
  constexpr std::size_t kWithoutAsking = 48 << 10;
  if (shape.shared_bytes > kWithoutAsking) {
    stream.keep(to_status(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                               static_cast<int>(shape.shared_bytes))));
  }
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = static_cast<cudaStream_t>(stream.handle);
  config.attrs = &attribute;
  config.numAttrs = shape.overlaps_predecessor ? 1 : 0;
  stream.keep(to_status(cudaLaunchKernelEx(&config, kernel, static_cast<P>(args)...)));
}

// call() puts work on the stream and says what came of it.
template <class Call>
void enqueue(Stream& stream, const Call& call) {
  if (stream.is_ok()) stream.keep(call());
}

#else

template <class... P, class... A>
void launch(Stream& stream, void (*kernel)(P...), const LaunchShape& shape, A&&... args) {
  if (!stream.is_ok() || shape.grid.x * shape.grid.y * shape.grid.z == 0) return;
  // Arguments are kept by value, as a captured launch keeps them.
  emu::submit(stream, [kernel, shape, seed = stream.thread_order, ... args = static_cast<P>(args)] {
    emu::run_grid(shape.grid, shape.block, shape.shared_bytes, seed, [&] { kernel(args...); });
  });
}

template <class Call>
void enqueue(Stream& stream, const Call& call) {
  emu::submit(stream, [&stream, call] { stream.keep(call()); });
}

#endif

}  // namespace imp::cuda
