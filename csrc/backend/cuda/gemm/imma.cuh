// Quantized weights times any number of rows of int8, with integer matrix instructions (mma). Same bits as dp4a.cuh.
//
// Split-K inside a block (sliced-K): a block computes 16 columns of out for 8 · kGroups rows, its warps slices of k.
// Weights are the left operand of mma; rows of x are the columns of the right one. Lane 4 · g + t has sums of rows g
// and g + 8 of the strip by columns 2t and 2t + 1 of each group: four chains each, by block number modulo 4.
#pragma once

#include "backend/cuda/gemm/decode_tile.cuh"
#include "backend/cuda/gemm/q8_input.cuh"
#include "backend/cuda/gemm/tile_work.cuh"

namespace imp::cuda {

constexpr int kGroupBatchRows = 8;

// Offsets of what a lane reads of x for a group, in 4-byte words from the start of x, so that each fits a register.
struct GroupInput {
  std::uint32_t codes;      // of column g, from element 4t of a block on
  std::uint32_t scaled[2];  // scales and sums of columns 2t and 2t + 1
};

// A lane's part of the weights of a block.
template <class Codes>
struct BlockCodes {
  std::uint32_t a[4];
  float scale[2], min[2];
  int half_scales[2][2];

  __device__ __forceinline__ BlockCodes(const Codes& codes, int i) {
    codes.fragment(i, a);
    codes.scales(i, scale);
    if constexpr (Codes::kHasMin) codes.mins(i, min);
    if constexpr (Codes::kHasHalfScales) codes.half_scales(i, half_scales);
  }
  // Exact dot products with a group's columns, times the scales of the block's halves if it has any.
  __device__ __forceinline__ void multiply(const std::uint32_t* x_codes, float (&dots)[4]) const {
    const std::uint32_t b[2] = {x_codes[0], x_codes[4]};
    if constexpr (Codes::kHasHalfScales) {
      const std::uint32_t first[2] = {a[0], a[1]}, last[2] = {a[2], a[3]};
      int of_first[4] = {}, of_last[4] = {};
      arch::mma_s8_k16(of_first, first, b[0]);
      arch::mma_s8_k16(of_last, last, b[1]);
      IMP_UNROLL
      for (int i = 0; i < 4; ++i) {
        dots[i] = static_cast<float>(of_first[i] * half_scales[i / 2][0] + of_last[i] * half_scales[i / 2][1]);
      }
    } else {
      // Dot products are below 2^20. Adding them to the bits of 1.5 · 2^23 makes floats faster than a conversion.
      constexpr int kBias = 0x4B400000;
      int biased[4] = {kBias, kBias, kBias, kBias};
      arch::mma_s8(biased, a, b);
      IMP_UNROLL
      for (int i = 0; i < 4; ++i) dots[i] = __int_as_float(biased[i]) - 0x1.8p23F;
    }
  }
};

// Adds two blocks of a quad to a group's chains: block `pair` and the next. codes and scaled are x from the quad on.
template <class Codes>
__device__ __forceinline__ void add_pair(const BlockCodes<Codes> (&weights)[2], int pair, const std::uint32_t* codes,
                                         const std::uint32_t* scaled, const GroupInput& x, float (&chains)[4][4]) {
  arch::Vec16 both[2];  // scale and sums of both blocks, for the lane's two columns
  IMP_UNROLL
  for (int j = 0; j < 2; ++j) {
    both[j] = *reinterpret_cast<const arch::Vec16*>(scaled + x.scaled[j] + pair * kScaledBytes / 4);
  }
  IMP_UNROLL
  for (int b = 0; b < 2; ++b) {
    float dots[4];
    weights[b].multiply(codes + x.codes + (pair + b) * kBlockElements / 4, dots);
    const BlockInput inputs[2] = {block_input(both[0].word[2 * b], both[0].word[2 * b + 1]),
                                  block_input(both[1].word[2 * b], both[1].word[2 * b + 1])};
    IMP_UNROLL
    for (int i = 0; i < 4; ++i) {
      float& chain = chains[pair + b][i];
      chain = add_block<Codes>(dots[i], weights[b].scale[i / 2], weights[b].min[i / 2], inputs[i % 2], chain);
    }
  }
}

template <class Codes, int kGroups>
__device__ __forceinline__ void add_quad(const Codes& weights, int quad, const TileWork& work,
                                         const GroupInput (&x)[kGroups], float (&chains)[kGroups][4][4]) {
  const auto* const words = reinterpret_cast<const std::uint32_t*>(work.x);
  const std::uint32_t* const codes = words + quad * kQuadBlocks * kBlockElements / 4;
  const std::uint32_t* const scaled =
      words + work.n_tiles * kCodeBytesOfTile / 4 + quad * kQuadBlocks * kScaledBytes / 4;
  IMP_UNROLL
  for (int pair = 0; pair < kQuadBlocks; pair += 2) {
    const BlockCodes<Codes> two[2] = {{weights, pair}, {weights, pair + 1}};
    IMP_UNROLL
    for (int group = 0; group < kGroups; ++group) add_pair(two, pair, codes, scaled, x[group], chains[group]);
  }
}

template <int kGroups>
__device__ __forceinline__ void find_inputs(const TileWork& work, const OutputTile& output, int lane,
                                            GroupInput (&x)[kGroups]) {
  const auto row_of = [&](int batch_row) {
    return static_cast<std::uint32_t>((find_x(work, output, batch_row) - work.x) / 4);
  };
  const int t = lane % 4;
  IMP_UNROLL
  for (int group = 0; group < kGroups; ++group) {
    const int batch_row = group * kGroupBatchRows;
    x[group].codes = row_of(batch_row + lane / 4) + static_cast<std::uint32_t>(t);
    IMP_UNROLL
    for (int j = 0; j < 2; ++j) x[group].scaled[j] = row_of(batch_row + t * 2 + j);
  }
}

// Stores the sums in the instructions' order where the slices are merged.
template <int kGroups>
__device__ __forceinline__ void store_sums(const float (&chains)[kGroups][4][4], float* sums, int lane) {
  IMP_UNROLL
  for (int group = 0; group < kGroups; ++group) {
    IMP_UNROLL
    for (int i = 0; i < 4; ++i) {
      const float (&chain)[4][4] = chains[group];
      const int batch_row = group * kGroupBatchRows + lane % 4 * 2 + i % 2;
      sums[batch_row * kSumStride + lane / 4 + i / 2 * 8] = (chain[0][i] + chain[2][i]) + (chain[1][i] + chain[3][i]);
    }
  }
}

// Blocks per processor whose registers fit without spilling: the chains alone take 16 per group and thread.
constexpr int imma_blocks(int n_groups) {
  return n_groups == 1 ? 2 : 1;
}

// Loads the next chunk of weights during the products of this one, if enough registers are left.
template <DType kType, int kGroups>
__global__ void __launch_bounds__(kTileThreads, imma_blocks(kGroups))
    imma_kernel(const __grid_constant__ TileWork work) {
  using Codes = TileCodes<kType>;
  constexpr int kBatchRows = kGroups * kGroupBatchRows;
  IMP_DYNAMIC_SHARED(float, sums);
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
  constexpr bool kFetchesAhead = kGroups < 4;
  Codes next;
  if (kFetchesAhead) load(next, begin);
  GroupInput x[kGroups];
  find_inputs(work, output, lane, x);

  for (int product = 0;; ++product) {
    float chains[kGroups][4][4] = {};
    for (int chunk = begin; chunk < end; ++chunk) {
      Codes codes;
      if constexpr (kFetchesAhead) {
        codes = next;
        if (chunk + 1 < end) load(next, chunk + 1);
      } else {
        load(codes, chunk);
      }
      IMP_ROLLED
      for (int quad = chunk * Codes::kQuads; quad < (chunk + 1) * Codes::kQuads; ++quad, codes.advance()) {
        add_quad(codes, quad, work, x, chains);
      }
    }
    store_sums(chains, sums_of(sums, product, slice, kBatchRows), lane);
    if (product == (is_pair ? 1 : 0)) break;
    strip = second;
    if (kFetchesAhead) load(next, begin);
  }
  __syncthreads();
  write_out<kBatchRows>(work, output, sums, 0);
}

}  // namespace imp::cuda
