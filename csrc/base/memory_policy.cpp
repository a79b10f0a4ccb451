// Calls mbind directly, to avoid a library for one call.
#include "base/memory_policy.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#if defined(__linux__)
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#endif

namespace imp {

std::string interleave_pages([[maybe_unused]] std::byte* start, [[maybe_unused]] std::size_t n_bytes,
                             [[maybe_unused]] std::span<const int> nodes) {
#if defined(__linux__)
  constexpr int kMaxNodes = 1024;  // the maximum of any kernel build
  constexpr int kWordBits = 64;
  std::array<std::uint64_t, kMaxNodes / kWordBits> mask{};
  for (const int node : nodes) {
    if (node < 0 || node >= kMaxNodes) return "no node " + std::to_string(node);
    mask[static_cast<std::size_t>(node / kWordBits)] |= std::uint64_t{1} << (node % kWordBits);
  }
  // The kernel reads one bit less than the given number.
  if (syscall(SYS_mbind, start, n_bytes, MPOL_INTERLEAVE, mask.data(), kMaxNodes + 1, 0) == 0) return {};
  return std::string("mbind: ") + std::strerror(errno);
#else
  return "this system has no call for it";
#endif
}

std::string interleave_refusal(std::span<const int> nodes) {
  constexpr std::size_t kOnePage = 1;  // the system rounds up
  void* const page = mmap(nullptr, kOnePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return std::strerror(errno);
  std::string refusal = interleave_pages(static_cast<std::byte*>(page), kOnePage, nodes);
  munmap(page, kOnePage);
  return refusal;
}

}  // namespace imp
