// Prepares rows of activations: one set of functions per instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

namespace imp::cpu {

// Prepares one row of k floats at `out`. The result depends only on that row, not on the instruction set.
using PrepareRow = void (*)(const float* x, std::int64_t k, std::byte* out);

struct RowPreparers {
  // Rounds to bfloat16, to nearest even. A zero follows a row of odd length.
  PrepareRow round;
  // Quantizes to ActivationBlocks; k is a multiple of 32. Per block, with a = max |x|:
  //   a is not finite          codes 0 and scale NaN: the products are NaN and are detected downstream
  //   a < 2^-119               all zero: the scale would not be a normal float
  //   else                     scale a / 127, codes x · (127 / a) rounded to nearest even
  PrepareRow quantize;
};

RowPreparers row_preparers_generic();
RowPreparers row_preparers_avx2();
RowPreparers row_preparers_avx512();

}  // namespace imp::cpu
