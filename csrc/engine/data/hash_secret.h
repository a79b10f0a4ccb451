// The secret of the keys of prefix blocks.
#pragma once

#include <cstdint>

namespace imp {

struct HashSecret {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
};

}  // namespace imp
