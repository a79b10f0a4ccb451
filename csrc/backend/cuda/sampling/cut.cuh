// The end of the shortest prefix of an order that holds a given mass: a weighted radix select. It finds the prefix
// without sorting.
#pragma once

#include "backend/cuda/sampling/weights.cuh"

namespace imp::cuda {

// An element's place in an order: by key, then by id.
struct Cut {
  Mass key;
  std::uint32_t id;
};

__device__ __forceinline__ bool is_before(const Cut& a, const Cut& b) {
  return a.key < b.key || (a.key == b.key && a.id < b.id);
}

// A search range: keys [low, high]; if low == high, ids [first, last].
struct OrderRange {
  Mass low, high;
  std::uint32_t first, last;

  __device__ __forceinline__ bool holds(Mass key, std::uint32_t id) const {
    return key >= low && key <= high && id >= first && id <= last;
  }
  __device__ __forceinline__ bool is_of_one_key() const { return low == high; }
  // Its parts have 2^shift keys or ids.
  __device__ __forceinline__ int shift() const {
    const Mass width = is_of_one_key() ? last - first : high - low;
    int shift = 0;
    while (width >> shift >= SamplingShape::kParts) ++shift;
    return shift;
  }
  __device__ __forceinline__ int part_of(Mass key, std::uint32_t id, int shift) const {
    return static_cast<int>(is_of_one_key() ? (id - first) >> shift : (key - low) >> shift);
  }
  __device__ __forceinline__ OrderRange part(int number, int shift) const {
    const Mass begin = static_cast<Mass>(number) << shift;
    const Mass length = (Mass{1} << shift) - 1;
    OrderRange range = *this;
    if (is_of_one_key()) {
      range.first += static_cast<std::uint32_t>(begin);
      range.last = static_cast<std::uint32_t>(Least{}(static_cast<Mass>(last), range.first + length));
    } else {
      range.low += begin;
      range.high = Least{}(high, range.low + length);
    }
    return range;
  }
};

struct CutSharedMemory {
  unsigned mass_low[SamplingShape::kParts], mass_high[SamplingShape::kParts];
  Mass reduced[SamplingShape::kWarps];
  Mass keys[SamplingShape::kListed], masses[SamplingShape::kListed];
  std::uint32_t ids[SamplingShape::kListed];
  int n_listed;  // the number found, which may exceed the capacity
  int part;
  Mass needed;
  Cut cut;
};

// In two halves with a carry, since 64-bit atomics in shared memory compile to loops.
__device__ __forceinline__ void add_mass(CutSharedMemory& memory, int part, Mass mass) {
  const auto low = static_cast<unsigned>(mass);
  const unsigned before = atomicAdd(&memory.mass_low[part], low);
  const auto high = static_cast<unsigned>(mass >> 32) + (before + low < before ? 1U : 0U);
  if (high != 0) atomicAdd(&memory.mass_high[part], high);
}

__device__ __forceinline__ Mass mass_of_part(const CutSharedMemory& memory, int part) {
  return static_cast<Mass>(memory.mass_high[part]) << 32 | memory.mass_low[part];
}

// By the first warp: finds the part in which the running sum reaches the needed mass, and the mass needed within it.
// needed_of(total) computes the needed mass from the sum of all parts.
template <class NeededOf>
__device__ __forceinline__ void choose_part(CutSharedMemory& memory, const NeededOf& needed_of) {
  constexpr int kOwn = SamplingShape::kParts / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x);
  Mass own = 0;
  for (int i = 0; i < kOwn; ++i) own += mass_of_part(memory, lane * kOwn + i);
  Mass running = own;
  for (int delta = 1; delta < kWarpSize; delta *= 2) {
    const Mass lower = __shfl_up_sync(kAllLanes, running, static_cast<unsigned>(delta));
    if (lane >= delta) running += lower;
  }
  const Mass needed = needed_of(__shfl_sync(kAllLanes, running, kWarpSize - 1));
  if (running < needed || running - own >= needed) return;
  Mass left = needed - (running - own);
  int part = lane * kOwn;
  while (mass_of_part(memory, part) < left) left -= mass_of_part(memory, part++);
  memory.part = part;
  memory.needed = left;
}

// Sums the masses of a range's parts and selects one part.
template <class Order, class NeededOf>
__device__ __forceinline__ void split(const Order& order, const float* row, int n, const OrderRange& range, int shift,
                                      const NeededOf& needed_of, CutSharedMemory& memory) {
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < SamplingShape::kParts) memory.mass_low[thread] = memory.mass_high[thread] = 0;
  __syncthreads();
  for_each_logit(row, n, [&](int id, float logit) {
    const Mass key = order.key(id, logit);
    if (!range.holds(key, static_cast<std::uint32_t>(id))) return;
    const Mass mass = order.mass(id, logit);
    if (mass != 0) add_mass(memory, range.part_of(key, static_cast<std::uint32_t>(id), shift), mass);
  });
  __syncthreads();
  if (thread < kWarpSize) choose_part(memory, needed_of);
  __syncthreads();
}

// Lists a range's elements, unordered, and shrinks the range to their keys. Returns false if there are too many.
template <class Order>
__device__ __forceinline__ bool list_range(const Order& order, const float* row, int n, OrderRange& range,
                                           CutSharedMemory& memory) {
  if (threadIdx.x == 0) memory.n_listed = 0;
  __syncthreads();
  Mass low = ~Mass{0};
  Mass high = ~Mass{0};  // complement of the greatest
  for_each_logit(row, n, [&](int id, float logit) {
    const Mass key = order.key(id, logit);
    if (!range.holds(key, static_cast<std::uint32_t>(id))) return;
    low = Least{}(low, key);
    high = Least{}(high, ~key);
    const int at = atomicAdd(&memory.n_listed, 1);
    if (at >= SamplingShape::kListed) return;
    memory.keys[at] = key;
    memory.ids[at] = static_cast<std::uint32_t>(id);
    memory.masses[at] = order.mass(id, logit);
  });
  range.low = over_block(low, Least{}, memory.reduced);
  range.high = ~over_block(high, Least{}, memory.reduced);
  return memory.n_listed <= SamplingShape::kListed;
}

// One thread per listed element: whether the cut is at it.
__device__ __forceinline__ void find_in_list(CutSharedMemory& memory, Mass needed) {
  const int own = static_cast<int>(threadIdx.x);
  if (own >= memory.n_listed) return;
  const Mass key = memory.keys[own];
  const std::uint32_t id = memory.ids[own];
  Mass before = 0;
  for (int i = 0; i < memory.n_listed; ++i) {
    before += is_before({memory.keys[i], memory.ids[i]}, {key, id}) ? memory.masses[i] : 0;
  }
  if (before < needed && before + memory.masses[own] >= needed) memory.cut = {key, id};
}

// The element of `run` at which the running mass reaches needed_of(mass of the range), which is at least 1 and at most
// that mass. Order supplies key(id, logit), which lies beyond every range for non-candidates, and mass(id, logit).
template <class Order, class NeededOf>
__device__ __forceinline__ Cut find_cut(const Order& order, const float* row, int n, OrderRange range,
                                        const NeededOf& needed_of, CutSharedMemory& memory) {
  range.last = static_cast<std::uint32_t>(n - 1);
  int shift = range.shift();
  split(order, row, n, range, shift, needed_of, memory);
  for (;;) {
    range = range.part(memory.part, shift);
    const Mass needed = memory.needed;
    if (list_range(order, row, n, range, memory)) break;
    shift = range.shift();
    split(order, row, n, range, shift, [&](Mass) { return needed; }, memory);
  }
  find_in_list(memory, memory.needed);
  __syncthreads();
  const Cut cut = memory.cut;
  __syncthreads();
  return cut;
}

inline constexpr Mass kNoKey = ~Mass{0};

// The greatest logit first. Keys start with the linear distance from it, since floats of similar size are crowded in
// the order of their bits; then comes the place itself.
template <bool kCounts>
struct ByLogit {
  static constexpr float kSteps = 16777215.0F;  // 2^24 - 1

  CandidateFilter filter;
  float scale;

  __device__ __forceinline__ ByLogit(const CandidateFilter& candidates, float least) : filter(candidates) {
    // Beyond 28 temperatures weights are zero, so crowding there does no harm.
    const float range = fminf(filter.greatest - least, 28.0F * filter.temperature);
    scale = range > 1e-30F ? kSteps / range : 0.0F;
  }

  // A masked logit is minus infinity and not part of the order.
  __device__ __forceinline__ Mass key(int, float logit) const {
    if (__float_as_uint(logit) == 0xFF800000U) return kNoKey;
    const float steps = fminf((filter.greatest - logit) * scale, kSteps);
    return static_cast<Mass>(static_cast<std::uint32_t>(steps)) << 32 | sort_key_of(logit);
  }
  __device__ __forceinline__ Mass mass(int id, float logit) const { return kCounts ? 1 : filter.weight(id, logit); }
  __device__ __forceinline__ OrderRange whole() const {
    return {0, static_cast<Mass>(static_cast<std::uint32_t>(kSteps)) << 32 | 0xFFFFFFFFU, 0, ~0U};
  }
};

// The nearest to the entropy first.
struct ByDistance {
  CandidateFilter filter;

  __device__ __forceinline__ Mass key(int id, float logit) const {
    const Mass weight = filter.weight(id, logit);
    return weight == 0 ? kNoKey : filter.distance_of(weight);
  }
  __device__ __forceinline__ Mass mass(int id, float logit) const { return filter.weight(id, logit); }
  // Distances are below 64, since no weight is below 2^-64 of the total.
  __device__ __forceinline__ static OrderRange whole() { return {0, 0x4050000000000000U, 0, ~0U}; }
};

}  // namespace imp::cuda
