// The vector operations compiled for AVX2.
#include "backend/cpu/lanes/lanes.h"
//
#include "lane_ops.inl"

namespace proof {

void lane_ops_avx2(const LaneInputs& in, LaneOutputs& out) {
  put_all(in, out);
}

}  // namespace proof
