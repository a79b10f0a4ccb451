// Attention of 16 query rows over tiles of 64 keys, in a warp's registers: the online softmax of FlashAttention on
// matrix instructions.
//
// All kernels use these functions in this order. So the bits of a row depend neither on the kernel nor on the other
// rows. A tile or split that a row does not see leaves its state unchanged.
#pragma once

#include "backend/cuda/attention/args.h"
#include "backend/cuda/device/arch.cuh"
#include "backend/cuda/device/warp.cuh"
#include "backend/cuda/kv/kv_types.cuh"
#include "base/ceil_div.h"

namespace imp::cuda {

constexpr int kTileRows = 16;
constexpr int kTileKeys = 64;
constexpr int kStepKeys = 16;  // of one matrix instruction
constexpr int kTileSteps = kTileKeys / kStepKeys;
constexpr int kScoreColumns = kTileKeys / 8;
constexpr int kChunkElements = 8;  // of 16 bits in 16 bytes
constexpr int kAttentionWarps = 4;
constexpr int kAttentionThreads = kAttentionWarps * kWarpSize;

// XOR swizzle of rows of kChunks · 16 bytes in shared memory: equal chunks of eight rows lie in different banks.
template <int kChunks>
constexpr int swizzled(int row, int chunk) {
  constexpr int kSpread = kChunks < 8 ? kChunks : 8;
  return chunk ^ (row / (8 / kSpread) % kSpread);
}
// The index of an element that begins a chunk.
template <int kColumns>
constexpr int swizzled_index(int row, int chunk) {
  return row * kColumns + swizzled<kColumns / kChunkElements>(row, chunk) * kChunkElements;
}

__device__ __forceinline__ int lane_of_thread() {
  return static_cast<int>(threadIdx.x) % kWarpSize;
}
__device__ __forceinline__ int warp_of_thread() {
  return static_cast<int>(threadIdx.x) / kWarpSize;
}
// A lane has parts of rows lane / 4 and lane / 4 + 8 of a tile, in columns 2 · (lane % 4) and the next of every 8.
__device__ __forceinline__ int row_of_lane(int which) {
  return lane_of_thread() / 4 + 8 * which;
}
__device__ __forceinline__ int column_of_lane() {
  return lane_of_thread() % 4 * 2;
}

// Keys [first, end) that a row sees.
struct KeyRange {
  int first = 0, end = 0;
};

__device__ __forceinline__ KeyRange visible_keys(int position, int window) {
  const int first = position - window + 1;
  return {window > 0 && first > 0 ? first : 0, position + 1};
}

// The matrix fragment of 16 rows for step `step` over head_dim. `rows` are the lane's two rows, or null.
template <class Kv>
__device__ __forceinline__ void load_query(const float* const (&rows)[2], int head_dim, float factor, int step,
                                           std::uint32_t (&a)[4]) {
  IMP_UNROLL
  for (int i = 0; i < 4; ++i) {
    const float* const row = rows[i % 2];
    const int d = step * 16 + i / 2 * 8 + column_of_lane();
    a[i] = row != nullptr && d < head_dim ? Kv::pack(row[d] * factor, row[d + 1] * factor) : 0;
  }
}

// Scores of 16 keys: rows of kDim in shared memory. `query(step)` returns what load_query() made.
template <class Kv, int kDim, class Query>
__device__ __forceinline__ void add_scores(const Query& query, const std::uint16_t* keys, float (&left)[4],
                                           float (&right)[4]) {
  const int lane = lane_of_thread();
  const int row = lane / 16 * 8 + lane % 8;
  IMP_UNROLL
  for (int step = 0; step < kDim / 16; ++step) {
    std::uint32_t a[4], b[4];
    query(step, a);
    arch::load_matrices(b, keys + swizzled_index<kDim>(row, 2 * step + lane / 8 % 2));
    Kv::mma(left, a, {b[0], b[1]});
    Kv::mma(right, a, {b[2], b[3]});
  }
}

// Applies the soft cap to the scores of a tile whose first key is at `position`, and masks keys.
__device__ __forceinline__ void finish_scores(float (&scores)[kScoreColumns][4], float soft_cap, int position,
                                              const KeyRange (&seen)[2], bool sees_all) {
  if (soft_cap > 0) {
    IMP_UNROLL
    for (int j = 0; j < kScoreColumns; ++j) {
      IMP_UNROLL
      for (int i = 0; i < 4; ++i) {
        // 1 - tanh(x / 2) = 2 / (e^x + 1)
        scores[j][i] = fmaf(-2.0F * soft_cap, arch::rcp_approx(arch::exp2_approx(scores[j][i]) + 1.0F), soft_cap);
      }
    }
  }
  if (sees_all) return;
  IMP_UNROLL
  for (int j = 0; j < kScoreColumns; ++j) {
    IMP_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int key = position + 8 * j + column_of_lane() + i % 2;
      if (key < seen[i / 2].first || key >= seen[i / 2].end) scores[j][i] = -INFINITY;
    }
  }
}

// The maxima of the lane's two rows; ignores NaN.
__device__ __forceinline__ void greatest_of_rows(const float (&scores)[kScoreColumns][4], float (&greatest)[2]) {
  greatest[0] = greatest[1] = -INFINITY;
  IMP_UNROLL
  for (int j = 0; j < kScoreColumns; ++j) {
    IMP_UNROLL
    for (int i = 0; i < 4; ++i) greatest[i / 2] = fmaxf(greatest[i / 2], scores[j][i]);
  }
  IMP_UNROLL
  for (int row = 0; row < 2; ++row) {
    greatest[row] = fmaxf(greatest[row], __shfl_xor_sync(kAllLanes, greatest[row], 1));
    greatest[row] = fmaxf(greatest[row], __shfl_xor_sync(kAllLanes, greatest[row], 2));
  }
}

// 2^(score - greatest), with 0 in place of a greatest score of -infinity.
__device__ __forceinline__ float weight_of(float score, float greatest) {
  return arch::exp2_approx(score - (greatest == -INFINITY ? 0.0F : greatest));
}

template <class Kv>
__device__ __forceinline__ void weigh(const float (&scores)[kScoreColumns][4], const float (&greatest)[2],
                                      std::uint32_t (&weights)[kTileSteps][4]) {
  IMP_UNROLL
  for (int step = 0; step < kTileSteps; ++step) {
    IMP_UNROLL
    for (int i = 0; i < 4; ++i) {
      const float (&pair)[4] = scores[2 * step + i / 2];
      const int row = i % 2;
      weights[step][i] = Kv::pack(weight_of(pair[2 * row], greatest[row]), weight_of(pair[2 * row + 1], greatest[row]));
    }
  }
}

// The state of the online softmax over one or more splits: for the lane's two rows the greatest score, in sums[2 · row]
// the sum of the rounded weights, and values in blocks of 8 columns.
template <int kColumns>
struct AttentionState {
  float greatest[2];
  float sums[4];
  float values[kColumns / 8][4];

  __device__ __forceinline__ void clear() {
    IMP_UNROLL
    for (int row = 0; row < 2; ++row) greatest[row] = -INFINITY;
    IMP_UNROLL
    for (int i = 0; i < 4; ++i) sums[i] = 0;
    IMP_UNROLL
    for (int j = 0; j < kColumns / 8; ++j) {
      IMP_UNROLL
      for (int i = 0; i < 4; ++i) values[j][i] = 0;
    }
  }

  // Rescales the state to the greatest score of this and a further tile (online softmax).
  __device__ __forceinline__ void rescale(const float (&greatest_of_tile)[2]) {
    float factors[2];
    IMP_UNROLL
    for (int row = 0; row < 2; ++row) {
      const float before = greatest[row];
      greatest[row] = fmaxf(before, greatest_of_tile[row]);
      factors[row] = weight_of(before, greatest[row]);
    }
    IMP_UNROLL
    for (int i = 0; i < 4; ++i) sums[i] *= factors[i / 2];
    IMP_UNROLL
    for (int j = 0; j < kColumns / 8; ++j) {
      IMP_UNROLL
      for (int i = 0; i < 4; ++i) values[j][i] *= factors[i / 2];
    }
  }
};

// Adds a tile's values with weights relative to state.greatest: kColumns of them from first_column on, a multiple of
// 16. Rows have kPitch columns in shared memory.
template <class Kv, int kPitch, int kColumns>
__device__ __forceinline__ void add_values(const std::uint32_t (&weights)[kTileSteps][4], const std::uint16_t* values,
                                           int first_column, AttentionState<kColumns>& state) {
  const int lane = lane_of_thread();
  const int row = lane / 8 % 2 * 8 + lane % 8;
  const int chunk = first_column / kChunkElements + lane / 16;
  IMP_UNROLL
  for (int step = 0; step < kTileSteps; ++step) {
    Kv::mma(state.sums, weights[step], {Kv::kOnes, Kv::kOnes});
    IMP_UNROLL
    for (int pair = 0; pair < kColumns / 16; ++pair) {
      std::uint32_t b[4];
      arch::load_matrices_transposed(b, values + swizzled_index<kPitch>(step * kStepKeys + row, chunk + 2 * pair));
      Kv::mma(state.values[2 * pair], weights[step], {b[0], b[1]});
      Kv::mma(state.values[2 * pair + 1], weights[step], {b[2], b[3]});
    }
  }
}

// Merges a state with that of the earlier splits.
struct MergeFactors {
  float greatest, before, here;
};

__device__ __forceinline__ MergeFactors merge_factors(float before, float here) {
  const float greatest = fmaxf(before, here);
  return {greatest, weight_of(before, greatest), weight_of(here, greatest)};
}

__device__ __forceinline__ float merged(const MergeFactors& factors, float before, float here) {
  return fmaf(here, factors.here, before * factors.before);
}

}  // namespace imp::cuda
