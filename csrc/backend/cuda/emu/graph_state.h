// What an emulated stream does with work: begins it at once, or keeps it for a graph.
#pragma once

#include <functional>
#include <vector>

#include "backend/cuda/runtime.h"

namespace imp::cuda {

struct Graph::State {
  std::vector<std::function<void()>> work;
};

namespace emu {

// Counts against the faults that tests ask for, then begins or keeps it.
void submit(Stream& stream, std::function<void()> work);

}  // namespace emu
}  // namespace imp::cuda
