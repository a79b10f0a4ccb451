// Touches a cache's first blocks before tokens reach them.
#pragma once

#include <thread>

namespace imp::cpu {

class CpuKvPool;

// The first write to a page costs a page fault and zeroing, up to a seventeenth of a short prompt's time. A thread
// touches the pages of the blocks that are allocated first: 2 MiB of K and of V in each layer, which is a thousand
// tokens of a model with 8 heads of 128 elements for K and V in f16. Later pages fault when they are written, so that a
// large cache takes no memory before it is used. The thread changes no byte and has low priority. If the system
// refuses, every page faults at its first write. `pool` must outlive the thread, which checks for a request to stop
// after every 2 MiB.
std::jthread make_resident(const CpuKvPool& pool);

}  // namespace imp::cpu
