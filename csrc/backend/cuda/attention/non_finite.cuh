// Handles infinite and NaN values that some rows of a block see and others do not: a weight of 0 does not cancel them.
#pragma once

#include "backend/cuda/attention/tile.cuh"

namespace imp::cuda {

// Whether a tile of values has a non-finite one, and per column the keys that have one, as bits.
struct NonFiniteValues {
  int* found;
  std::uint64_t* keys;  // [columns]
};

// All threads of a block call this with a tile that some rows see in part. Sets non-finite values to zero and records
// where they were. Afterwards *found is true if there are any; it may be true if there are none.
template <class Kv, int kPitch>
__device__ __forceinline__ void zero_non_finite(std::uint16_t* values, const NonFiniteValues& non_finite) {
  constexpr std::uint32_t kLow = Kv::kExponent;
  constexpr std::uint32_t kHigh = Kv::kExponent << 16;
  const int thread = static_cast<int>(threadIdx.x);
  for (int chunk = thread; chunk < kTileKeys * kPitch / kChunkElements; chunk += kAttentionThreads) {
    const arch::Vec16 words = *reinterpret_cast<const arch::Vec16*>(values + chunk * kChunkElements);
    IMP_UNROLL
    for (int i = 0; i < 4; ++i) {
      if ((words.word[i] & kLow) == kLow || (words.word[i] & kHigh) == kHigh) *non_finite.found = 1;
    }
  }
  __syncthreads();
  if (*non_finite.found == 0) return;
  for (int column = thread; column < kPitch; column += kAttentionThreads) {
    std::uint64_t keys = 0;
    IMP_ROLLED
    for (int key = 0; key < kTileKeys; ++key) {
      std::uint16_t* const at = values + swizzled_index<kPitch>(key, column / kChunkElements) + column % kChunkElements;
      if ((*at & kLow) != kLow) continue;
      keys |= std::uint64_t{1} << key;
      *at = 0;
    }
    non_finite.keys[column] = keys;
  }
  __syncthreads();
}

// The keys of a tile that a row sees, as bits. The first key is at `position`.
__device__ __forceinline__ std::uint64_t seen_bits(const KeyRange& seen, int position) {
  const auto below = [](int n) {  // the first n
    return n <= 0 ? 0 : n >= kTileKeys ? ~std::uint64_t{0} : (std::uint64_t{1} << n) - 1;
  };
  return below(seen.end - position) & ~below(seen.first - position);
}

// Rows that see a non-finite value get NaN.
template <int kColumns>
__device__ __forceinline__ void add_non_finite(const NonFiniteValues& non_finite, int first_column, int position,
                                               const KeyRange (&seen)[2], AttentionState<kColumns>& state) {
  const std::uint64_t bits[2] = {seen_bits(seen[0], position), seen_bits(seen[1], position)};
  IMP_UNROLL
  for (int j = 0; j < kColumns / 8; ++j) {
    IMP_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int column = first_column + 8 * j + column_of_lane() + i % 2;
      if ((non_finite.keys[column] & bits[i / 2]) != 0) state.values[j][i] = NAN;
    }
  }
}

}  // namespace imp::cuda
