// Routing to experts: host code.
#include "backend/cuda/ops/experts.cuh"

#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/ops/cuda_ops.h"
#include "base/ceil_div.h"

namespace imp::cuda {

void route_experts(Stream& stream, Rows scores, const ExpertRouting& routing, const ExpertRows& out) {
  constexpr int kWarps = kRouteThreads / kWarpSize;
  scores.n_rows = out.n_rows;
  launch(stream, choose_experts_kernel,
         {.grid = static_cast<unsigned>(ceil_div(out.n_rows, kWarps)), .block = kRouteThreads}, scores, routing, out);
  launch(stream, group_by_expert_kernel, {.grid = 1, .block = kGroupThreads}, out);
}

}  // namespace imp::cuda
