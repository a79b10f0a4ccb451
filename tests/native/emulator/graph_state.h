// What an emulated stream does with work: keeps it until somebody waits for it, or for a graph.
#pragma once

#include <functional>
#include <vector>

#include "backend/cuda/device/runtime.h"

namespace imp::cuda {

struct Graph::State {
  std::vector<std::function<void()>> work;
};

namespace emu {

void submit(Stream& stream, std::function<void()> work);

// As native/gpu/thread_order.h sets it.
unsigned thread_order(const Stream& stream);

}  // namespace emu
}  // namespace imp::cuda
