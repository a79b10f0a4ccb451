// Touches the first pages of the KV cache early, those of each layer.
#include "backend/cpu/kv/kv_residency.h"

#include <algorithm>
#include <cstdint>
#include <system_error>

#include "backend/cpu/kv/cpu_kv_pool.h"

#if defined(__linux__)
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#endif

namespace imp::cpu {

#if defined(__linux__) && defined(MADV_POPULATE_WRITE)
namespace {

constexpr std::size_t kBytesOfLayer = std::size_t{2} << 20;  // of K, and of V: one huge page

// False if the system refuses.
bool populate(std::span<std::byte> memory) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(memory.data());
  std::byte* const first = memory.data() - begin % page;
  return madvise(first, static_cast<std::size_t>(memory.data() + memory.size() - first), MADV_POPULATE_WRITE) == 0;
}

void populate_first_blocks(const CpuKvPool& pool, const std::stop_token& stop) {
  // Holding the process's memory map makes other threads wait. So the priority is low, not the lowest.
  constexpr int kNice = 10;
  setpriority(PRIO_PROCESS, 0, kNice);  // on Linux for the calling thread only
  const KvGeometry& geometry = pool.geometry();
  for (int layer = 0; layer < geometry.n_layers(); ++layer) {
    for (const std::span<std::byte> block : {pool.k_block(layer, 0), pool.v_block(layer, 0)}) {
      const std::size_t n_bytes = static_cast<std::size_t>(geometry.n_blocks) * block.size();
      if (stop.stop_requested() || !populate({block.data(), std::min(n_bytes, kBytesOfLayer)})) return;
    }
  }
}

}  // namespace

std::jthread make_resident(const CpuKvPool& pool) {
  if (pool.n_bytes() == 0) return {};
  try {
    return std::jthread([&pool](const std::stop_token& stop) { populate_first_blocks(pool, stop); });
  } catch (const std::system_error&) {
    return {};  // no thread available: pages are touched by the first tokens
  }
}
#else
std::jthread make_resident(const CpuKvPool&) {
  return {};
}
#endif

}  // namespace imp::cpu
