// The sampler's launches: one block per request.
#include "backend/cuda/sampling/kernels.h"

#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/sampling/adjust.cuh"
#include "backend/cuda/sampling/choose.cuh"
#include "backend/cuda/sampling/report.cuh"

namespace imp::cuda {
namespace {

LaunchShape one_block_each(int n_requests) {
  return {.grid = static_cast<unsigned>(n_requests), .block = SamplingShape::kThreads};
}

}  // namespace

void adjust_rows(Stream& stream, Rows logits, int n_requests, const SamplingMemory& memory) {
  launch(stream, adjust_rows_kernel, one_block_each(n_requests), logits, memory.requests, memory.adjustments,
         memory.masks, memory.adjusted);
}

void report_rows(Stream& stream, Rows logits, int n_requests, const SamplingMemory& memory) {
  launch(stream, report_kernel, one_block_each(n_requests), logits, memory.requests, memory.results, memory.candidates);
}

void choose_tokens(Stream& stream, Rows logits, int n_requests, const SamplingMemory& memory) {
  launch(stream, choose_kernel, one_block_each(n_requests), logits, memory.adjusted, memory.requests, memory.results);
}

}  // namespace imp::cuda
