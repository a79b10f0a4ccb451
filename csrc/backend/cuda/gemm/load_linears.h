// Reads weights, packs them on the host's threads and sends them to the device.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/device/device_memory.h"
#include "backend/cuda/device/stream.h"
#include "base/thread_pool.h"

namespace imp::cuda {

// In the order of the requests. What read or progress throw ends the loading; the memory of what was loaded is freed.
std::vector<std::unique_ptr<Linear>> load_cuda_linears(std::span<const LinearRequest> requests, DeviceArena& memory,
                                                       ThreadPool& threads, Stream& stream, const BytesRead& progress);

}  // namespace imp::cuda
