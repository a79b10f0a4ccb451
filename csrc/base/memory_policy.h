// Placement and size of the pages of large memory.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace imp {

struct MemoryOptions {
  bool huge_pages = true;             // requested; ordinary pages are used if the system has none
  std::vector<int> interleave_nodes;  // NUMA nodes to interleave pages over; empty: the system decides
};

// Interleaves the future pages of a mapping. Returns an empty string, or the reason of the refusal: a container's
// filter may forbid the call, or a node may not exist.
std::string interleave_pages(std::byte* start, std::size_t n_bytes, std::span<const int> nodes);

// Whether interleave_pages would succeed, tried on a page of its own.
std::string interleave_refusal(std::span<const int> nodes);

}  // namespace imp
