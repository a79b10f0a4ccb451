// Launches on the emulated device. This file replaces the one of csrc.
#pragma once

#include <utility>

#include "backend/cuda/device/launch_shape.cuh"
#include "native/emulator/graph_state.h"

namespace imp::cuda {

template <class... P, class... A>
void launch(Stream& stream, void (*kernel)(P...), const LaunchShape& shape, A&&... args) {
  if (!stream.is_ok() || shape.grid.x * shape.grid.y * shape.grid.z == 0) return;
  // Stores the arguments by value, like a captured launch.
  emu::submit(stream, [kernel, shape, seed = emu::thread_order(stream), ... args = static_cast<P>(args)] {
    emu::run_grid(shape.grid, shape.block, shape.shared_bytes, seed, [&] { kernel(args...); });
  });
}

template <class Call>
void enqueue(Stream& stream, const Call& call) {
  emu::submit(stream, [&stream, call] { stream.keep(call()); });
}

}  // namespace imp::cuda
