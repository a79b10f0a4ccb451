// Reports on raw logits: finiteness, log-probabilities and the most likely candidates.
#pragma once

#include "backend/cuda/sampling/cut.cuh"
#include "backend/cuda/sampling/data.h"
#include "backend/rows.h"
#include "backend/scalar_math.h"

namespace imp::cuda {

__device__ __forceinline__ float logprob_of(float logit, float greatest, double log_sum) {
  return static_cast<float>(static_cast<double>(logit) - static_cast<double>(greatest) - log_sum);
}

struct ReportSharedMemory {
  ScanSharedMemory scan;
  CutSharedMemory cut;
};

__device__ __forceinline__ double log_sum_of(const float* row, int n, float greatest, ReportSharedMemory& memory) {
  Mass total = 0;
  for_each_logit(row, n, [&](int, float logit) { total += weight_of(logit, greatest, 1.0F); });
  total = over_block(total, Sum{}, memory.scan.best);
  return log_of(static_cast<double>(total) * 0x1p-40);
}

// One thread per listed element: writes it to its place in the order.
__device__ __forceinline__ void write_in_order(const CutSharedMemory& memory, const float* row,
                                               const DeviceResult& result, Candidate* out) {
  const int own = static_cast<int>(threadIdx.x);
  if (own >= memory.n_listed) return;
  const Mass key = memory.keys[own];
  const std::uint32_t id = memory.ids[own];
  int rank = 0;
  for (int i = 0; i < memory.n_listed; ++i) {
    rank += is_before({memory.keys[i], memory.ids[i]}, {key, id}) ? 1 : 0;
  }
  const auto token = static_cast<std::int32_t>(id);
  out[rank] = {token, logprob_of(row[token], result.greatest, result.log_sum)};
}

// Lists the elements from one place in the order up to another: at most kListed.
template <class Order>
__device__ __forceinline__ void list_between(const Order& order, const float* row, int n, const Cut& first,
                                             const Cut& last, CutSharedMemory& memory) {
  if (threadIdx.x == 0) memory.n_listed = 0;
  __syncthreads();
  for_each_logit(row, n, [&](int id, float logit) {
    const Cut at = {order.key(id, logit), static_cast<std::uint32_t>(id)};
    if (is_before(at, first) || is_before(last, at)) return;
    const int rank = atomicAdd(&memory.n_listed, 1);
    memory.keys[rank] = at.key;
    memory.ids[rank] = at.id;
  });
  __syncthreads();
}

// In portions that fit the list. n_candidates is at most n.
__device__ __forceinline__ void list_candidates(const float* row, int n, const DeviceResult& result, int n_candidates,
                                                Candidate* out, ReportSharedMemory& memory) {
  const ByLogit<true> order(CandidateFilter::all(result.greatest, 1.0F), result.least);
  Cut first = {0, 0};
  for (int done = 0; done < n_candidates; done += SamplingShape::kListed) {
    const int upto = done + SamplingShape::kListed < n_candidates ? done + SamplingShape::kListed : n_candidates;
    const auto needed_of = [upto](Mass) { return static_cast<Mass>(upto); };
    const Cut last = find_cut(order, row, n, order.whole(), needed_of, memory.cut);
    list_between(order, row, n, first, last, memory.cut);
    write_in_order(memory.cut, row, result, out + done);
    __syncthreads();
    first = {last.key, last.id + 1};
  }
}

// One block per request. Scores its token if it has one.
__global__ void __launch_bounds__(SamplingShape::kThreads)
    report_kernel(Rows logits, const DeviceRequest* requests, DeviceResult* results, Candidate* candidates) {
  __shared__ ReportSharedMemory memory;
  const DeviceRequest& request = requests[blockIdx.x];
  const float* const row = logits.data + request.logits_row * logits.stride;
  const RowScan found = scan_row(row, logits.width, memory.scan);
  DeviceResult result = {};
  result.status = found.is_finite ? SampleStatus::ok : SampleStatus::non_finite;
  result.token = request.token;
  result.id = found.id;
  result.greatest = found.greatest;
  result.least = found.least;
  if (found.is_finite && (request.wants_logprob || request.n_candidates > 0)) {
    result.log_sum = log_sum_of(row, logits.width, found.greatest, memory);
    list_candidates(row, logits.width, result, request.n_candidates, candidates + request.first_candidate, memory);
    if (request.token >= 0) result.logprob = logprob_of(row[request.token], found.greatest, result.log_sum);
  }
  if (threadIdx.x == 0) results[blockIdx.x] = result;
}

}  // namespace imp::cuda
