// The shape of a warpgroup's product (wgmma).
#pragma once

#include "backend/cuda/device/tile_swizzle.h"

namespace imp::cuda::hopper {

constexpr int kWarpgroupThreads = 128;
constexpr int kProductColumns = 128;
constexpr int kProductGroups = kProductColumns / 8;
constexpr int kTileRowElements = kTileRowBytes / 2;

}  // namespace imp::cuda::hopper
