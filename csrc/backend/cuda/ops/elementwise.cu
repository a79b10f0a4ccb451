// Elementwise ops.
#include <cstdint>

#include "backend/backend.h"
#include "backend/cuda/device/arch.cuh"
#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/device/math.cuh"
#include "backend/cuda/ops/cuda_ops.h"
#include "backend/rows.h"
#include "base/ceil_div.h"

namespace imp::cuda {

constexpr int kElementThreads = 256;

// Element `column` of row blockIdx.x, one per thread; false beyond the row.
__device__ __forceinline__ bool find_element(int width, int* column) {
  *column = static_cast<int>(blockIdx.y * kElementThreads + threadIdx.x);
  return *column < width;
}
__device__ __forceinline__ float& element(Rows rows, int column) {
  return rows.data[blockIdx.x * rows.stride + column];
}

template <bool kIsSilu>
__global__ void __launch_bounds__(kElementThreads) gated_activation_kernel(Rows gate, Rows up, Rows out) {
  int i = 0;
  if (!find_element(out.width, &i)) return;
  const float g = element(gate, i);
  element(out, i) = (kIsSilu ? silu_of(g) : gelu_tanh_of(g)) * element(up, i);
}

static __global__ void __launch_bounds__(kElementThreads) add_kernel(Rows x, Rows y) {
  int i = 0;
  if (!find_element(x.width, &i)) return;
  element(x, i) += element(y, i);
}

static __global__ void __launch_bounds__(kElementThreads) add_gated_kernel(Rows x, Rows y, Rows gates) {
  int i = 0;
  if (!find_element(x.width, &i)) return;
  float& to = element(x, i);
  to = fmaf(sigmoid_of(element(gates, 0)), element(y, i), to);
}

static __global__ void __launch_bounds__(kElementThreads) soft_cap_kernel(Rows x, float cap) {
  int i = 0;
  if (!find_element(x.width, &i)) return;
  float& to = element(x, i);
  to = cap * tanh_of(to / cap);
}

static __global__ void __launch_bounds__(kElementThreads)
    gather_rows_kernel(Rows x, const std::int32_t* rows, Rows out) {
  int i = 0;
  if (!find_element(out.width, &i)) return;
  element(out, i) = x.data[rows[blockIdx.x] * x.stride + i];
}

// The weighted sum of the experts' outputs of a row, by descending score.
static __global__ void __launch_bounds__(kElementThreads)
    mix_experts_kernel(Rows grouped, const std::int32_t* grouped_rows, const float* weights, int n_used, Rows out) {
  int i = 0;
  if (!find_element(out.width, &i)) return;
  float total = 0;
  for (int used = 0; used < n_used; ++used) {
    const auto at = static_cast<std::ptrdiff_t>(blockIdx.x) * n_used + used;
    total = fmaf(grouped.data[grouped_rows[at] * grouped.stride + i], weights[at], total);
  }
  element(out, i) = total;
}

namespace {

// Rows are the first grid dimension: the others allow fewer blocks than there may be rows.
LaunchShape one_thread_each(Rows rows) {
  return {
      .grid = dim3(static_cast<unsigned>(rows.n_rows), static_cast<unsigned>(ceil_div(rows.width, kElementThreads))),
      .block = kElementThreads};
}

}  // namespace

void gated_activation(Stream& stream, GatedActivation kind, Rows gate, Rows up, Rows out) {
  IMP_CHECK(kind != GatedActivation::gelu_erf);
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
  launch(stream, mix_experts_kernel, one_thread_each(out), grouped, rows.grouped_rows, rows.weights, rows.n_used, out);
}

}  // namespace imp::cuda
