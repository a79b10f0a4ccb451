// Upper bounds of the memory that products by cuBLASLt take.
#pragma once

#include <cstddef>
#include <cstdint>

namespace imp::cuda {

// The decoded weights fill a GPU with a usual prefill chunk; the products may stay in its L2 cache until finished.
struct CublasLtLimits {
  static constexpr std::int64_t weight_bytes = std::int64_t{128} << 20;  // decoded at a time, of all products that are
                                                                         // made at once
  static constexpr std::int64_t product_bytes = std::int64_t{64} << 20;  // likewise, before they are finished
  static constexpr std::int64_t strip_rows = 16384;  // of one product's weight, whatever their length
  static constexpr int part_rows = 2048;             // of x
  static constexpr std::size_t workspace_bytes = std::size_t{32} << 20;
};

}  // namespace imp::cuda
