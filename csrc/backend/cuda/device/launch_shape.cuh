// What is launched, and on which stream.
#pragma once

#include <cstddef>

#include "backend/cuda/device/arch.cuh"
#include "backend/cuda/device/stream.h"
#include "backend/gemm_launch.h"

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

}  // namespace imp::cuda
