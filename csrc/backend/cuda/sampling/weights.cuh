// The order of a row's logits, and their integer weights: the same bits as on the CPU.
#pragma once

#include "backend/cuda/device/math.cuh"
#include "backend/cuda/sampling/shape.cuh"
#include "backend/scalar_math.h"

namespace imp::cuda {

// A sort key that ascends as logits descend; -0 and +0 share it.
__device__ __forceinline__ std::uint32_t sort_key_of(float logit) {
  const int word = __float_as_int(logit);
  const int key = word ^ (word >> 31 & 0x7FFFFFFF);
  return ~(static_cast<std::uint32_t>(key == -1 ? 0 : key) ^ 0x80000000U);
}

// floor(exp((logit - greatest) / temperature) · 2^40), in two exact steps.
__device__ __forceinline__ Mass weight_of(float logit, float greatest, float temperature) {
  const float distance = (logit - greatest) / temperature;
  if (distance < -28.0F) return 0;  // e^-28 is below 2^-40
  const float scaled = exp_of(distance) * 0x1p16F;
  const float high = floorf(scaled);
  const float low = floorf((scaled - high) * 0x1p24F);
  return (static_cast<Mass>(high) << 24) + static_cast<Mass>(low);
}

// The greatest logit of a row, and whether all are finite.
struct RowScan {
  float greatest, least;  // the least that is finite
  int id;                 // of the greatest, the lowest
  bool is_finite;
};

struct ScanSharedMemory {
  Mass best[SamplingShape::kWarps];
  std::uint32_t words[SamplingShape::kWarps];
};

__device__ __forceinline__ RowScan scan_row(const float* row, int n, ScanSharedMemory& memory) {
  Mass best = ~Mass{0};
  // Complements, so that each needs a minimum: of the least logit's sort key, and of the bits of the greatest
  // magnitude.
  std::uint32_t last = ~0U;
  std::uint32_t magnitude = ~0U;
  for_each_logit(row, n, [&](int id, float logit) {
    const std::uint32_t sort_key = sort_key_of(logit);
    const std::uint32_t bits = __float_as_uint(logit) & 0x7FFFFFFFU;
    best = Least{}(best, static_cast<Mass>(sort_key) << 32 | static_cast<Mass>(id));
    magnitude = Least{}(magnitude, ~bits);
    if (bits < 0x7F800000U) last = Least{}(last, ~sort_key);
  });
  best = over_block(best, Least{}, memory.best);
  last = over_block(last, Least{}, memory.words);
  magnitude = over_block(magnitude, Least{}, memory.words);
  const int id = static_cast<int>(best & 0x7FFFFFFFU);
  const std::uint32_t order = last ^ 0x80000000U;  // the bits of a finite logit, with negative ones in reverse order
  const int key = static_cast<int>(order);
  const float least = __int_as_float(key ^ (key >> 31 & 0x7FFFFFFF));
  return {row[id], least, id, ~magnitude < 0x7F800000U};
}

// The candidates of a draw: tokens of non-zero weight that every filter so far keeps.
struct CandidateFilter {
  float greatest, temperature;
  // Up to and including this one, in the order of sort keys, then ids.
  std::uint32_t last_sort_key;
  std::uint32_t last_id;
  Mass least_weight;
  // Up to and including this one, in the order of distances from the entropy, then ids.
  bool is_typical;
  std::uint32_t last_typical_id;
  Mass last_distance;
  double total, entropy;  // before this filter

  __device__ static CandidateFilter all(float greatest, float temperature) {
    return {greatest, temperature, ~0U, ~0U, 1, false, ~0U, ~Mass{0}, 0, 0};
  }

  // 0: not a candidate.
  __device__ __forceinline__ Mass weight(int id, float logit) const {
    const std::uint32_t sort_key = sort_key_of(logit);
    if (sort_key > last_sort_key || (sort_key == last_sort_key && static_cast<std::uint32_t>(id) > last_id)) return 0;
    const Mass found = weight_of(logit, greatest, temperature);
    if (found < least_weight) return 0;
    if (is_typical) {
      const Mass distance = distance_of(found);
      if (distance > last_distance) return 0;
      if (distance == last_distance && static_cast<std::uint32_t>(id) > last_typical_id) return 0;
    }
    return found;
  }

  __device__ __forceinline__ double surprise_of(Mass found) const {
    return -log_of(static_cast<double>(found) / total);
  }
  // The bits of a non-negative double have its order.
  __device__ __forceinline__ Mass distance_of(Mass found) const {
    return static_cast<Mass>(__double_as_longlong(fabs(surprise_of(found) - entropy)));
  }
};

}  // namespace imp::cuda
