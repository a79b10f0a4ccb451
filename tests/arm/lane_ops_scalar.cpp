// The vector operations as plain code on one number at a time.
#include "scalar_lanes.h"
//
#include "lane_ops.inl"

namespace proof {

void lane_ops_scalar(const LaneInputs& in, LaneOutputs& out) {
  put_all(in, out);
}

}  // namespace proof
