// Elementwise ops: host code.
#include "backend/cuda/ops/elementwise.cuh"

#include "backend/backend.h"
#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/ops/cuda_ops.h"
#include "base/ceil_div.h"

namespace imp::cuda {
namespace {

// Rows are the first grid dimension: the others allow fewer blocks than there may be rows.
LaunchShape one_thread_each(Rows rows) {
  return {
      .grid = dim3(static_cast<unsigned>(rows.n_rows), static_cast<unsigned>(ceil_div(rows.width, kElementThreads))),
      .block = kElementThreads};
}

}  // namespace

void gated_activation(Stream& stream, GatedActivation kind, Rows gate, Rows up, Rows out) {
  const auto kernel = kind == GatedActivation::silu ? gated_activation_kernel<true> : gated_activation_kernel<false>;
  out.n_rows = gate.n_rows;
  launch(stream, kernel, one_thread_each(out), gate, up, out);
}

void add(Stream& stream, Rows x, Rows y) {
  launch(stream, add_kernel, one_thread_each(x), x, y);
}

void add_gated(Stream& stream, Rows x, Rows y, Rows gates) {
  launch(stream, add_gated_kernel, one_thread_each(x), x, y, gates);
}

void soft_cap(Stream& stream, Rows x, float cap) {
  launch(stream, soft_cap_kernel, one_thread_each(x), x, cap);
}

void gather_rows(Stream& stream, Rows x, const std::int32_t* rows, Rows out) {
  launch(stream, gather_rows_kernel, one_thread_each(out), x, rows, out);
}

void mix_experts(Stream& stream, Rows grouped, const ExpertRows& rows, Rows out) {
  launch(stream, mix_experts_kernel, one_thread_each(out), grouped, rows.places, rows.weights, rows.n_used, out);
}

}  // namespace imp::cuda
