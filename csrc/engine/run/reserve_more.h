// Room in a list for more entries, without an exception.
#pragma once

#include <algorithm>
#include <cstddef>
#include <new>
#include <vector>

namespace imp {

// Grows as push_back does. Returns false if there is no memory.
template <class T>
bool reserve_more(std::vector<T>& list, std::size_t n_more) noexcept {
  const std::size_t wanted = list.size() + n_more;
  try {
    if (wanted > list.capacity()) list.reserve(std::max(wanted, 2 * list.capacity()));
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

}  // namespace imp
