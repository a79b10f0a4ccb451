// Sets the order of the threads of a block, if the device allows it.
#pragma once

#include "backend/cuda/device/stream.h"

namespace imp::cuda {

// Applies to later launches on the stream. A real device ignores the seed.
void set_thread_order(Stream& stream, unsigned seed);

}  // namespace imp::cuda
