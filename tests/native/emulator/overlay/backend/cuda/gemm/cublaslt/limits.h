// Small limits, so that tests have several strips and several parts. This file replaces the one of csrc.
#pragma once

#include <cstddef>
#include <cstdint>

namespace imp::cuda {

struct CublasLtLimits {
  static constexpr std::int64_t weight_bytes = 48 << 10;
  static constexpr std::int64_t product_bytes = 12 << 10;
  static constexpr std::int64_t strip_rows = 64;
  static constexpr int part_rows = 128;
  static constexpr std::size_t workspace_bytes = 4 << 10;
};

}  // namespace imp::cuda
