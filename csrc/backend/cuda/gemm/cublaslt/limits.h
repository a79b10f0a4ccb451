// Upper bounds of the memory that products by cuBLASLt take.
#pragma once

#include <cstddef>
#include <cstdint>

namespace imp::cuda {

// Products with this many weights keep all processors of a GPU busy at a usual prefill chunk, and this many results fit
// its L2 cache until they are finished.
struct CublasLtLimits {
  static constexpr std::int64_t weight_bytes = std::int64_t{128} << 20;  // decoded at a time, of all products that are
                                                                         // made at once
  static constexpr std::int64_t product_bytes = std::int64_t{64} << 20;  // likewise, before they are finished
  static constexpr std::int64_t strip_rows = 16384;                      // of the weight per strip, whatever k is
  static constexpr int part_rows = 2048;                                 // of x
  static constexpr std::size_t workspace_bytes = std::size_t{32} << 20;
};

}  // namespace imp::cuda
