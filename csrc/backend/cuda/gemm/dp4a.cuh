// Quantized weights times up to four rows of int8, with dp4a (a dot product of four int8 per lane): a GEMV for decode.
//
// Split-K inside a block (sliced-K): a block computes 16 columns of out, and its warps slices of k; the rows of x are
// in shared memory. Lane 4 · g + t has parts of the dot products of rows g and g + 8 with four blocks of 32 elements.
// These exact integers are transposed so that lane t has all of block t, which it scales. Its sum is the chain of the
// blocks t, t + 4 …
#pragma once

#include "backend/cuda/gemm/decode_tile.cuh"
#include "backend/cuda/gemm/q8_input.cuh"
#include "backend/cuda/gemm/tile_work.cuh"

namespace imp::cuda {

constexpr int kDp4aBatchRows = 4;  // at most

// Sums v[i] over the four lanes of a group; lane t gets the sum for i = t.
static __device__ __forceinline__ int transposed_sum(const int (&v)[4], int t) {
  const bool upper = (t & 2) != 0, odd = (t & 1) != 0;
  const int first = (upper ? v[2] : v[0]) + __shfl_xor_sync(kAllLanes, upper ? v[0] : v[2], 2);
  const int second = (upper ? v[3] : v[1]) + __shfl_xor_sync(kAllLanes, upper ? v[1] : v[3], 2);
  return (odd ? second : first) + __shfl_xor_sync(kAllLanes, odd ? first : second, 1);
}

// A lane's part of the weights of four blocks.
template <class Codes>
struct QuadCodes {
  std::uint32_t a[4][4];
  float scale[2], min[2];  // of the lane's block
  int half_scales[4][2][2];

  __device__ __forceinline__ QuadCodes(const Codes& codes, int t) {
    IMP_UNROLL
    for (int i = 0; i < 4; ++i) codes.fragment(i, a[i]);
    codes.scales(t, scale);
    if constexpr (Codes::kHasMin) codes.mins(t, min);
    if constexpr (Codes::kHasHalfScales) {
      IMP_UNROLL
      for (int i = 0; i < 4; ++i) codes.half_scales(i, half_scales[i]);
    }
  }
  // This lane's part of the dot product of a block in row g + 8 · h, times the scales of its halves if it has any.
  __device__ __forceinline__ int dot(int i, int h, int x_first, int x_last) const {
    const int first = static_cast<int>(a[i][h]), last = static_cast<int>(a[i][h + 2]);
    if constexpr (Codes::kHasHalfScales) {
      return __dp4a(first, x_first, 0) * half_scales[i][h][0] + __dp4a(last, x_last, 0) * half_scales[i][h][1];
    }
    return __dp4a(first, x_first, __dp4a(last, x_last, 0));
  }
};

// Adds a quad with this first block to the chains of each row of x.
template <class Codes, int kBatchRows>
__device__ __forceinline__ void add_quad(const Codes& codes, const std::byte* x, int n_tiles, int block, int t,
                                         float (&chains)[kBatchRows][2]) {
  const QuadCodes<Codes> weights(codes, t);
  IMP_UNROLL
  for (int batch_row = 0; batch_row < kBatchRows; ++batch_row) {
    const std::byte* const row = x + batch_row * n_tiles * kRowBytesOfTile;
    const int* const x_codes = reinterpret_cast<const int*>(row + block * kBlockElements) + t;
    int dots[2][4];
    IMP_UNROLL
    for (int i = 0; i < 4; ++i) {
      IMP_UNROLL
      for (int h = 0; h < 2; ++h) dots[h][i] = weights.dot(i, h, x_codes[i * 8], x_codes[i * 8 + 4]);
    }
    const uint2 scaled = reinterpret_cast<const uint2*>(row + n_tiles * kCodeBytesOfTile)[block + t];
    const BlockInput input = block_input(scaled.x, scaled.y);
    IMP_UNROLL
    for (int h = 0; h < 2; ++h) {
      chains[batch_row][h] = add_block<Codes>(static_cast<float>(transposed_sum(dots[h], t)), weights.scale[h],
                                              weights.min[h], input, chains[batch_row][h]);
    }
  }
}

// Stores (0 + 2) + (1 + 3) of the chains of a group's lanes where the slices are merged.
template <int kBatchRows>
__device__ __forceinline__ void store_sums(const float (&chains)[kBatchRows][2], float* sums, int lane) {
  IMP_UNROLL
  for (int batch_row = 0; batch_row < kBatchRows; ++batch_row) {
    IMP_UNROLL
    for (int h = 0; h < 2; ++h) {
      float sum = chains[batch_row][h];
      sum += __shfl_xor_sync(kAllLanes, sum, 2);
      sum += __shfl_xor_sync(kAllLanes, sum, 1);
      if (lane % 4 == 0) sums[batch_row * kSumStride + lane / 4 + 8 * h] = sum;
    }
  }
}

// Starts to copy the block's rows of x to shared memory.
template <int kBatchRows>
__device__ __forceinline__ void begin_copies(const TileWork& work, const OutputTile& output, std::byte* shared) {
  const int row_bytes = work.n_tiles * kRowBytesOfTile;
  IMP_UNROLL
  for (int batch_row = 0; batch_row < kBatchRows; ++batch_row) {
    const std::byte* const row = find_x(work, output, batch_row);
    for (int at = static_cast<int>(threadIdx.x) * 16; at < row_bytes; at += static_cast<int>(blockDim.x) * 16) {
      arch::begin_copy16(shared + batch_row * row_bytes + at, row + at);
    }
  }
  arch::end_copy_group();
}

// Blocks per processor whose registers fit without spilling.
template <class Codes>
constexpr int dp4a_blocks(int batch_rows) {
  return batch_rows == 1 && !Codes::kHasMin ? 3 : 2;
}

// Loads the next chunk of weights during the products of this one, and the first one while x arrives.
template <DType kType, int kBatchRows>
__global__ void __launch_bounds__(kTileThreads, dp4a_blocks<TileCodes<kType>>(kBatchRows))
    dp4a_kernel(const __grid_constant__ TileWork work) {
  using Codes = TileCodes<kType>;
  IMP_DYNAMIC_SHARED(std::byte, x);
  float* const sums = reinterpret_cast<float*>(x + kBatchRows * work.n_tiles * kRowBytesOfTile);
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize, slice = static_cast<int>(threadIdx.x) / kWarpSize;

  OutputTile output;
  if (!find_output_tile(work, kBatchRows, &output)) return;
  const bool is_pair = work.fusion != GemmFusion::none;
  const std::byte* strip = find_strip(work, output, output.term, Codes::kTileBytes);
  const std::byte* const second = is_pair ? find_strip(work, output, 1, Codes::kTileBytes) : strip;
  if (strip == nullptr || second == nullptr) return;

  const TileRange tiles = slice_of(work.n_tiles, slice);
  const int begin = tiles.begin * Codes::kChunks, end = tiles.end * Codes::kChunks;
  const auto load = [&](Codes& codes, int chunk) {
    codes.load(strip + chunk / Codes::kChunks * Codes::kTileBytes, chunk % Codes::kChunks, lane);
  };
  begin_copies<kBatchRows>(work, output, x);
  Codes next;
  load(next, begin);
  arch::wait_for_copies<0>();
  __syncthreads();

  for (int product = 0;; ++product) {
    float chains[kBatchRows][2] = {};
    for (int chunk = begin; chunk < end; ++chunk) {
      Codes codes = next;
      if (chunk + 1 < end) load(next, chunk + 1);
      IMP_ROLLED
      for (int quad = chunk * Codes::kQuads; quad < (chunk + 1) * Codes::kQuads; ++quad, codes.advance()) {
        add_quad(codes, x, work.n_tiles, quad * kQuadBlocks, lane % 4, chains);
      }
    }
    store_sums(chains, sums_of(sums, product, slice, kBatchRows), lane);
    if (product == (is_pair ? 1 : 0)) break;
    strip = second;
    load(next, begin);
  }
  __syncthreads();
  write_out<kBatchRows>(work, output, sums, 0);
}

}  // namespace imp::cuda
