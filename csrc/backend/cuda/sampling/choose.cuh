// One draw from a row of logits: each filter narrows the candidates, then the draw goes by ascending id.
#pragma once

#include "backend/cuda/sampling/cut.cuh"
#include "backend/cuda/sampling/data.h"
#include "backend/cuda/sampling/report.cuh"
#include "backend/rows.h"
#include "backend/sampling_rules.h"
#include "base/ceil_div.h"

namespace imp::cuda {

struct ChooseMemory {
  ScanMemory scan;
  CutMemory cut;
  Mass masses[SamplingShape::kWarps];
  double terms[SamplingShape::kThreads];
  bool has_terms[SamplingShape::kWarps];
  double entropy;
};

__device__ __forceinline__ Mass mass_of(const Kept& kept, const float* row, int n, ChooseMemory& memory) {
  Mass mass = 0;
  for_each_logit(row, n, [&](int id, float logit) { mass += kept.weight(id, logit); });
  return over_block(mass, Sum{}, memory.masses);
}

__device__ __forceinline__ void keep_top_k(Kept& kept, const float* row, int n, float least, int top_k,
                                           ChooseMemory& memory) {
  const ByLogit<true> order(kept, least);
  // If masks leave fewer than top_k, all of them.
  const auto needed_of = [top_k](Mass total) { return Least{}(total, static_cast<Mass>(top_k)); };
  const Cut cut = find_cut(order, row, n, order.whole(), needed_of, memory.cut);
  kept.last_place = static_cast<std::uint32_t>(cut.key);
  kept.last_id = cut.id;
}

__device__ __forceinline__ void keep_top_p(Kept& kept, const float* row, int n, float least, float top_p,
                                           ChooseMemory& memory) {
  const ByLogit<false> order(kept, least);
  const auto needed_of = [top_p](Mass total) { return static_cast<Mass>(share(top_p, total)); };
  const Cut cut = find_cut(order, row, n, order.whole(), needed_of, memory.cut);
  kept.last_place = static_cast<std::uint32_t>(cut.key);
  kept.last_id = cut.id;
}

// The sum of p · surprise by ascending id: one thread adds what all threads computed.
__device__ __forceinline__ double entropy_of(const Kept& kept, const float* row, int n, ChooseMemory& memory) {
  const int thread = static_cast<int>(threadIdx.x);
  double entropy = 0;
  for (int first = 0; first < n; first += SamplingShape::kThreads) {
    const int id = first + thread;
    const Mass weight = id < n ? kept.weight(id, row[id]) : 0;
    memory.terms[thread] =
        weight == 0 ? 0.0 : static_cast<double>(weight) / kept.total * kept.surprise_of(weight);  // adding 0 is nothing
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

__device__ __forceinline__ void keep_typical(Kept& kept, const float* row, int n, float typical_p,
                                             ChooseMemory& memory) {
  const Mass total = mass_of(kept, row, n, memory);
  kept.total = static_cast<double>(total);
  kept.entropy = entropy_of(kept, row, n, memory);
  const ByDistance order = {kept};
  const auto needed_of = [typical_p, total](Mass) { return static_cast<Mass>(share(typical_p, total)); };
  const Cut cut = find_cut(order, row, n, order.whole(), needed_of, memory.cut);
  kept.is_typical = true;
  kept.last_distance = cut.key;
  kept.last_typical_id = cut.id;
}

// Inverse transform sampling: the first id whose inclusive cumulative weight exceeds floor(random · total / 2^64). Each
// round, every warp sums the weights of a range of the row; the range that holds the id is searched in the next round.
__device__ __forceinline__ int draw(const Kept& kept, const float* row, int n, Mass random, ChooseMemory& memory) {
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
    for_each_logit(row, from + lane, to, kWarpSize, [&](int id, float logit) { mass += kept.weight(id, logit); });
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

__device__ __forceinline__ int choose(const Asked& request, const RowScan& found, const float* row, int n,
                                      ChooseMemory& memory) {
  if (request.is_greedy) return found.id;
  const SamplerValues& values = request.values;
  Kept kept = Kept::all(found.greatest, values.temperature);
  if (!request.keeps_all) {
    if (values.top_k > 0) keep_top_k(kept, row, n, found.least, values.top_k, memory);
    if (values.top_p < 1) keep_top_p(kept, row, n, found.least, values.top_p, memory);
    if (values.min_p > 0) kept.least_weight = share(values.min_p, std::uint64_t{1} << 40);
    if (values.typical_p < 1) keep_typical(kept, row, n, values.typical_p, memory);
  }
  return draw(kept, row, n, request.random, memory);
}

// One block per request, after its report.
__global__ void __launch_bounds__(SamplingShape::kThreads)
    choose_kernel(Rows logits, Rows adjusted, const Asked* asked, Answer* answers) {
  __shared__ ChooseMemory memory;
  const Asked& request = asked[blockIdx.x];
  const Answer answer = answers[blockIdx.x];
  if (answer.status != SampleStatus::ok) return;
  const float* const raw = logits.data + request.logits_row * logits.stride;
  const float* const row = request.is_adjusted ? adjusted.data + blockIdx.x * adjusted.stride : raw;
  RowScan found = {answer.greatest, answer.least, answer.id, true};
  if (request.is_adjusted) found = scan_row(row, logits.width, memory.scan);
  const bool has_candidate = found.greatest > __uint_as_float(0xFF800000U);
  const int token = has_candidate ? choose(request, found, row, logits.width, memory) : -1;
  // A thread that reads its answer only now is done: the request needed neither a choice nor a scan.
  if (threadIdx.x != 0) return;
  answers[blockIdx.x].token = token;
  if (!has_candidate) answers[blockIdx.x].status = SampleStatus::no_candidate;
  if (has_candidate && request.wants_logprob) {
    answers[blockIdx.x].logprob = logprob_of(raw[token], answer.greatest, answer.log_sum);
  }
}

}  // namespace imp::cuda
