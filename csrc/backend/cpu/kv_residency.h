// Touches a cache's first blocks before tokens reach them.
#pragma once

#include <thread>

namespace imp::cpu {

class CpuKvPool;

// The first write to a page costs a page fault and zeroing, up to a seventeenth of a short prompt's time. A thread
// touches the pages of the blocks that are allocated first: 2 MiB of K and of V in each layer, which is a thousand
// tokens of a model of 8B parameters. Later pages fault when they are written, which costs less than a hundredth of a
// long prompt's time, so that a large cache takes no memory before it is used. The thread changes no byte and has low
// priority. If the system refuses, every page faults at its first write. `pool` must outlive the thread, which checks
// for a request to stop after every 2 MiB.
std::jthread make_resident(const CpuKvPool& pool);

}  // namespace imp::cpu
