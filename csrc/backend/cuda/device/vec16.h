// The most that one load moves: 16 bytes.
#pragma once

#include <cstdint>

namespace imp::cuda::arch {

struct alignas(16) Vec16 {
  std::uint32_t word[4];
};

}  // namespace imp::cuda::arch
