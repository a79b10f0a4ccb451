// Touches the pages of the KV cache early, the same blocks of every layer at a time, in block order.
#include "backend/cpu/kv_residency.h"

#include <algorithm>
#include <cstdint>
#include <system_error>

#include "backend/cpu/cpu_kv_pool.h"

#if defined(__linux__)
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#endif

namespace imp::cpu {

#if defined(__linux__) && defined(MADV_POPULATE_WRITE)
namespace {

constexpr std::size_t kMaxBytes = std::size_t{1} << 30;
constexpr std::size_t kPieceBytes = std::size_t{2} << 20;

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
  std::size_t block_bytes = 1;  // of the largest layer
  for (int layer = 0; layer < geometry.n_layers(); ++layer) {
    block_bytes = std::max({block_bytes, pool.k_block(layer, 0).size(), pool.v_block(layer, 0).size()});
  }
  const int step = static_cast<int>(std::max<std::size_t>(1, kPieceBytes / block_bytes));
  std::size_t done = 0;
  for (std::int32_t block = 0; block < geometry.n_blocks && done < kMaxBytes; block += step) {
    const auto n_blocks = static_cast<std::size_t>(std::min(step, geometry.n_blocks - block));
    for (int layer = 0; layer < geometry.n_layers(); ++layer) {
      for (const std::span<std::byte> first : {pool.k_block(layer, block), pool.v_block(layer, block)}) {
        if (stop.stop_requested() || !populate({first.data(), n_blocks * first.size()})) return;
        done += n_blocks * first.size();
      }
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
