// The state of an emulated stream: it stores work until a caller waits for it, or for a graph.
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

// The seed that native/gpu/thread_order.h sets.
unsigned thread_order(const Stream& stream);

}  // namespace emu
}  // namespace imp::cuda
