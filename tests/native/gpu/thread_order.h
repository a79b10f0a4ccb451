// In which order the threads of a block run, where a test can say so.
#pragma once

#include "backend/cuda/device/stream.h"

namespace imp::cuda {

// Of what is launched on the stream from now on. A real device keeps its own order whatever the seed.
void set_thread_order(Stream& stream, unsigned seed);

}  // namespace imp::cuda
