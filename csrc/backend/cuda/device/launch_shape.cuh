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
  // Programmatic dependent launch: needs arch::wait_for_predecessor() before accesses to other kernels' data.
  bool overlaps_predecessor = false;
};

inline Stream& stream_of(const GemmLaunch& launch) noexcept {
  return *static_cast<Stream*>(launch.stream);
}

}  // namespace imp::cuda
