// Makes a cache's first blocks resident before tokens reach them.
#pragma once

#include <thread>

namespace imp::cpu {

class CpuKvPool;

// Memory costs its first write a page fault and the system's zeros, which are a seventeenth of a short prompt's time
// where prompts pay. So a thread of its own asks for the pages of the blocks that are handed out first. It changes no
// byte, gives way to other threads, and ends after the first GiB: what lies behind becomes resident as it is written,
// so that a large cache is not taken from the machine before it is used. Where the system cannot do this, or refuses,
// pages come as they did. `pool` must outlive the thread, which stops within a piece of 2 MiB.
std::jthread make_resident(const CpuKvPool& pool);

}  // namespace imp::cpu
