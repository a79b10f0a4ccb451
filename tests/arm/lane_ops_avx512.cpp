// The vector operations compiled for AVX-512.
#include "backend/cpu/lanes/lanes.h"
//
#include "lane_ops.inl"

namespace proof {

void lane_ops_avx512(const LaneInputs& in, LaneOutputs& out) {
  put_all(in, out);
}

}  // namespace proof
