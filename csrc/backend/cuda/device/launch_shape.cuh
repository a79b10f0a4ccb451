// The shape of a launch, and the stream of a matrix kernel's launch.
#pragma once

#include <cstddef>

#include "backend/cuda/device/arch.cuh"
#include "backend/cuda/device/stream.h"
#include "backend/gemm_launch.h"

namespace imp::cuda {

struct LaunchShape {
  dim3 grid, block;
  std::size_t shared_bytes = 0;  // dynamic
};

inline Stream& stream_of(const GemmLaunch& launch) noexcept {
  return *static_cast<Stream*>(launch.stream);
}

}  // namespace imp::cuda
