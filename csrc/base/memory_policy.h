// Where the pages of large memory lie, and how large they are.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace imp {

struct MemoryOptions {
  bool huge_pages = true;             // asked for; where the system has none, ordinary pages serve
  std::vector<int> interleave_nodes;  // NUMA nodes that take the pages in turn; empty: as the system places them
};

// Whether the pages of a mapping will lie as asked; what is already written stays where it is. Empty where it will,
// else the system's refusal in words: a container's filter may forbid the call, a node may not be there.
std::string interleave_pages(std::byte* start, std::size_t n_bytes, std::span<const int> nodes);

// What interleave_pages would say of memory to come: tried on a page of its own.
std::string interleave_refusal(std::span<const int> nodes);

}  // namespace imp
