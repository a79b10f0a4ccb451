// 16 bytes: the most that one load instruction moves.
#pragma once

#include <cstdint>

namespace imp::cuda::arch {

struct alignas(16) Vec16 {
  std::uint32_t word[4];
};

}  // namespace imp::cuda::arch
