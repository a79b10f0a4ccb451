// One draw from a row of logits: each filter narrows the candidates, then the draw goes by ascending id.
#pragma once

#include "backend/cuda/sampling/cut.cuh"
#include "backend/cuda/sampling/data.h"
#include "backend/cuda/sampling/report.cuh"
#include "backend/rows.h"
#include "backend/sampling_rules.h"
#include "base/ceil_div.h"

namespace imp::cuda {

struct ChooseSharedMemory {
  ScanSharedMemory scan;
  CutSharedMemory cut;
  Mass masses[SamplingShape::kWarps];
  double terms[SamplingShape::kThreads];
  bool has_terms[SamplingShape::kWarps];
  double entropy;
};

__device__ __forceinline__ Mass mass_of(const CandidateFilter& filter, const float* row, int n,
                                        ChooseSharedMemory& memory) {
  Mass mass = 0;
  for_each_logit(row, n, [&](int id, float logit) { mass += filter.weight(id, logit); });
  return over_block(mass, Sum{}, memory.masses);
}

__device__ __forceinline__ void keep_top_k(CandidateFilter& filter, const float* row, int n, float least, int top_k,
                                           ChooseSharedMemory& memory) {
  const ByLogit<true> order(filter, least);
  // If masks leave fewer than top_k, all of them.
  const auto needed_of = [top_k](Mass total) { return Least{}(total, static_cast<Mass>(top_k)); };
  const Cut cut = find_cut(order, row, n, order.whole(), needed_of, memory.cut);
  filter.last_sort_key = static_cast<std::uint32_t>(cut.key);
  filter.last_id = cut.id;
}

__device__ __forceinline__ void keep_top_p(CandidateFilter& filter, const float* row, int n, float least, float top_p,
                                           ChooseSharedMemory& memory) {
  const ByLogit<false> order(filter, least);
  const auto needed_of = [top_p](Mass total) { return static_cast<Mass>(share(top_p, total)); };
  const Cut cut = find_cut(order, row, n, order.whole(), needed_of, memory.cut);
  filter.last_sort_key = static_cast<std::uint32_t>(cut.key);
  filter.last_id = cut.id;
}

// The sum of p · surprise by ascending id: one thread adds what all threads computed.
__device__ __forceinline__ double entropy_of(const CandidateFilter& filter, const float* row, int n,
                                             ChooseSharedMemory& memory) {
  const int thread = static_cast<int>(threadIdx.x);
  double entropy = 0;
  for (int first = 0; first < n; first += SamplingShape::kThreads) {
    const int id = first + thread;
    const Mass weight = id < n ? filter.weight(id, row[id]) : 0;
    // Adding 0 changes nothing.
    memory.terms[thread] = weight == 0 ? 0.0 : static_cast<double>(weight) / filter.total * filter.surprise_of(weight);
    const bool has_terms = __any_sync(kAllLanes, weight != 0);
    if (thread % kWarpSize == 0) memory.has_terms[thread / kWarpSize] = has_terms;
    __syncthreads();
    if (thread == 0) {
      for (int warp = 0; warp < SamplingShape::kWarps; ++warp) {
        if (!memory.has_terms[warp]) continue;
        for (int lane = 0; lane < kWarpSize; ++lane) entropy += memory.terms[warp * kWarpSize + lane];
      }
    }
    __syncthreads();
  }
  if (thread == 0) memory.entropy = entropy;
  __syncthreads();
  return memory.entropy;
}

__device__ __forceinline__ void keep_typical(CandidateFilter& filter, const float* row, int n, float typical_p,
                                             ChooseSharedMemory& memory) {
  const Mass total = mass_of(filter, row, n, memory);
  filter.total = static_cast<double>(total);
  filter.entropy = entropy_of(filter, row, n, memory);
  const ByDistance order = {filter};
  const auto needed_of = [typical_p, total](Mass) { return static_cast<Mass>(share(typical_p, total)); };
  const Cut cut = find_cut(order, row, n, order.whole(), needed_of, memory.cut);
  filter.is_typical = true;
  filter.last_distance = cut.key;
  filter.last_typical_id = cut.id;
}

// Inverse transform sampling: the first id whose inclusive cumulative weight exceeds floor(random · total / 2^64). Each
// round, every warp sums the weights of a range of the row; the range that holds the id is searched in the next round.
__device__ __forceinline__ int draw(const CandidateFilter& filter, const float* row, int n, Mass random,
                                    ChooseSharedMemory& memory) {
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  int begin = 0;
  int end = n;
  Mass left = 0;
  for (bool is_first = true; end - begin > 1; is_first = false) {
    const int piece = ceil_div(end - begin, SamplingShape::kWarps);
    const int from = begin + warp * piece;
    const int to = from + piece < end ? from + piece : end;
    Mass mass = 0;
    for_each_logit(row, from + lane, to, kWarpSize, [&](int id, float logit) { mass += filter.weight(id, logit); });
    mass = warp_sum(mass);
    if (lane == 0) memory.masses[warp] = mass;
    __syncthreads();
    if (is_first) {
      Mass total = 0;
      for (int i = 0; i < SamplingShape::kWarps; ++i) total += memory.masses[i];
      left = __umul64hi(random, total);
    }
    int chosen = 0;
    while (chosen < SamplingShape::kWarps - 1 && memory.masses[chosen] <= left) left -= memory.masses[chosen++];
    __syncthreads();
    begin += chosen * piece;
    end = begin + piece < end ? begin + piece : end;
  }
  return begin;
}

__device__ __forceinline__ int choose(const DeviceRequest& request, const RowScan& found, const float* row, int n,
                                      ChooseSharedMemory& memory) {
  if (request.is_greedy) return found.id;
  const SamplerValues& values = request.values;
  CandidateFilter filter = CandidateFilter::all(found.greatest, values.temperature);
  if (!request.keeps_all) {
    if (values.top_k > 0) keep_top_k(filter, row, n, found.least, values.top_k, memory);
    if (values.top_p < 1) keep_top_p(filter, row, n, found.least, values.top_p, memory);
    if (values.min_p > 0) filter.least_weight = share(values.min_p, std::uint64_t{1} << 40);
    if (values.typical_p < 1) keep_typical(filter, row, n, values.typical_p, memory);
  }
  return draw(filter, row, n, request.random, memory);
}

// One thread block per request. Runs after report_kernel.
__global__ void __launch_bounds__(SamplingShape::kThreads)
    choose_kernel(Rows logits, Rows adjusted, const DeviceRequest* requests, DeviceResult* results) {
  __shared__ ChooseSharedMemory memory;
  const DeviceRequest& request = requests[blockIdx.x];
  const DeviceResult result = results[blockIdx.x];
  if (result.status != SampleStatus::ok) return;
  const float* const raw = logits.data + request.logits_row * logits.stride;
  const float* const row = request.is_adjusted ? adjusted.data + blockIdx.x * adjusted.stride : raw;
  RowScan found = {result.greatest, result.least, result.id, true};
  if (request.is_adjusted) found = scan_row(row, logits.width, memory.scan);
  const bool has_candidate = found.greatest > __uint_as_float(0xFF800000U);
  const int token = has_candidate ? choose(request, found, row, logits.width, memory) : -1;
  // Only thread 0 writes the result.
  if (threadIdx.x != 0) return;
  results[blockIdx.x].token = token;
  if (!has_candidate) results[blockIdx.x].status = SampleStatus::no_candidate;
  if (has_candidate && request.wants_logprob) {
    results[blockIdx.x].logprob = logprob_of(raw[token], result.greatest, result.log_sum);
  }
}

}  // namespace imp::cuda
