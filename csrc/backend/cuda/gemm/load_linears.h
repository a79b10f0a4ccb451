// Reads weights, packs them on the host's threads and copies them to the device.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/device/device_memory.h"
#include "backend/cuda/device/stream.h"
#include "base/thread_pool.h"

namespace imp::cuda {

// Returns the weights in the order of the requests. An exception of `read` or `progress` ends the loading and frees
// what was loaded.
std::vector<std::unique_ptr<Linear>> load_cuda_linears(std::span<const LinearRequest> requests, DeviceArena& memory,
                                                       ThreadPool& threads, Stream& stream, const BytesRead& progress);

}  // namespace imp::cuda
