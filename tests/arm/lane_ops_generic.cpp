// The vector operations compiled for any processor of the family.
#include "backend/cpu/lanes/lanes.h"
//
#include "lane_ops.inl"

namespace proof {

void lane_ops_generic(const LaneInputs& in, LaneOutputs& out) {
  put_all(in, out);
}

}  // namespace proof
