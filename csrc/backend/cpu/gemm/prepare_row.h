// Preparation of rows of activations, one set of functions per instruction set; plain declarations.
#pragma once

#include <cstddef>
#include <cstdint>

namespace imp::cpu {

// Prepares one row of k floats at `out`. A prepared row depends on that row alone, and not on the instruction set.
using PrepareRow = void (*)(const float* x, std::int64_t k, std::byte* out);

struct RowPreparers {
  // To bfloat16, to nearest even; a row of odd length is followed by a zero.
  PrepareRow round;
  // To ActivationBlocks, k a multiple of 32. Per block, with a = max |x|:
  //   a is not finite          every code 0 and the scale NaN: the products are NaN, so that it is seen downstream
  //   a < 2^-119               all zero: the scale would not be a normal float
  //   else                     scale a / 127, codes x · (127 / a) rounded to nearest even
  PrepareRow quantize;
};

RowPreparers row_preparers_generic();
RowPreparers row_preparers_avx2();
RowPreparers row_preparers_avx512();

}  // namespace imp::cpu
