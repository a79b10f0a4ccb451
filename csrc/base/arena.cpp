// Chunks are anonymous mappings aligned to huge pages, since the kernel uses huge pages only then.
#include "base/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>

#include "base/ceil_div.h"
#include "base/error.h"

namespace imp {

namespace {

constexpr std::size_t kHugePage = Arena::kHugePageBytes;
constexpr std::size_t kAlignment = 64;

[[noreturn]] void refuse(std::size_t n_bytes) {
  throw ResourceExhausted(Reason::NO_MEMORY, "memory: " + std::to_string(n_bytes) + " bytes refused by the system",
                          {{"needed", std::to_string(n_bytes)}});
}

// Must be called before the first write: pages that exist keep their node and their size.
void apply_options(std::byte* start, std::size_t n_bytes, const MemoryOptions& options) {
#if defined(MADV_HUGEPAGE)
  madvise(start, n_bytes, options.huge_pages ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);  // only a hint; errors are ignored
#endif
  if (options.interleave_nodes.empty()) return;
  const std::string refusal = interleave_pages(start, n_bytes, options.interleave_nodes);
  if (refusal.empty()) return;
  throw FieldInvalid("numa", "the system does not interleave memory over its nodes: " + refusal);
}

std::shared_ptr<std::byte> map_chunk(std::size_t n_bytes, const MemoryOptions& options) {
  const std::size_t mapped = n_bytes + kHugePage;
  void* const address =
      mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) refuse(n_bytes);
  const std::size_t slack =
      round_up(reinterpret_cast<std::uintptr_t>(address), kHugePage) - reinterpret_cast<std::uintptr_t>(address);
  auto* const start = static_cast<std::byte*>(address) + slack;
  if (slack > 0) munmap(address, slack);
  if (slack < kHugePage) munmap(start + n_bytes, kHugePage - slack);
  std::shared_ptr<std::byte> chunk(start, [n_bytes](std::byte* memory) { munmap(memory, n_bytes); });
  apply_options(start, n_bytes, options);
  return chunk;
}

}  // namespace

std::shared_ptr<std::byte> Arena::allocate(std::size_t n_bytes) {
  if (n_bytes > std::numeric_limits<std::size_t>::max() / 4) refuse(n_bytes);
  const std::size_t size = round_up(std::max(n_bytes, std::size_t{1}), kAlignment);
  if (!chunk_ || size > chunk_size_ - used_) {
    const std::size_t chunk_size = round_up(std::max(size, chunk_bytes_), kHugePage);
    chunk_ = map_chunk(chunk_size, options_);
    chunk_size_ = chunk_size;
    used_ = 0;
  }
  std::shared_ptr<std::byte> piece(chunk_, chunk_.get() + used_);
  used_ += size;
  return piece;
}

}  // namespace imp
