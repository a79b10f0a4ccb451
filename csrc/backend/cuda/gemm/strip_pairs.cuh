// Shared by the kernels for many rows: a warp multiplies two strips of weights by some rows of x and writes them to
// out. The strips are neighbours, or the same strip of a gate and of its product. A warp of a narrow kernel has one
// strip.
#pragma once

#include "backend/cuda/gemm/block_order.h"
#include "backend/cuda/gemm/tile_work.cuh"
#include "base/ceil_div.h"

namespace imp::cuda {

// Strips of one term's weights per block, and the number of its blocks.
constexpr int strips_of_block(GemmFusion fusion, int n_warps) {
  return fusion == GemmFusion::none ? 2 * n_warps : n_warps;
}
inline __host__ __device__ int row_blocks_of(const TileWork& work, int term, int block_strips) {
  return ceil_div(static_cast<int>(strips_of(work.terms[term].n)), block_strips);
}
inline __host__ __device__ int n_row_blocks_of(const TileWork& work, int block_strips) {
  int n = 0;
  for (int term = 0; term < work.n_terms; ++term) n += row_blocks_of(work, term, block_strips);
  return n;
}

// The block's first strip and its rows of out. False if the block has no work. The same for all threads.
static __device__ __forceinline__ bool find_output_tile_of_strips(const TileWork& work, int block_strips,
                                                                  int batch_rows, OutputTile* output) {
  const int n_passes = n_passes_of(work.m, work.n_experts, batch_rows);
  const BlockPosition at = block_position(static_cast<int>(blockIdx.x), n_row_blocks_of(work, block_strips), n_passes);
  output->term = 0;
  output->strip = at.row_block;
  while (output->strip >= row_blocks_of(work, output->term, block_strips)) {
    output->strip -= row_blocks_of(work, output->term++, block_strips);
  }
  output->strip *= block_strips;
  if (work.n_experts > 0) return find_expert_rows(work, at.pass, batch_rows, output);
  output->expert = 0;
  output->first = at.pass * batch_rows;
  output->end = smaller_of(output->first + batch_rows, work.m);
  return true;
}

// A warp's two strips: their numbers, which may exceed the weight, and the tiles of those that exist.
struct StripPair {
  int strip[2];
  const std::byte* tiles[2];
};
// False if the weight belongs to another kernel.
template <int kStrips = 2>
__device__ __forceinline__ bool find_strip_pair(const TileWork& work, const OutputTile& output, int warp,
                                                int tile_bytes, StripPair* pair) {
  const bool is_gated = work.fusion != GemmFusion::none;
  const int last = static_cast<int>(strips_of(work.terms[output.term].n)) - 1;
  IMP_UNROLL
  for (int i = 0; i < kStrips; ++i) {
    pair->strip[i] = output.strip + (is_gated ? warp : kStrips * warp + i);
    OutputTile one = output;
    one.strip = smaller_of(pair->strip[i], last);
    pair->tiles[i] = find_strip(work, one, is_gated ? i : output.term, tile_bytes);
    if (pair->tiles[i] == nullptr) return false;
  }
  return true;
}

// The index of a sum by strip, row of the strip and batch row. Lanes that read or write have no bank conflicts.
constexpr int staged_at(int strip, int row, int batch_row) {
  return batch_row * 32 + ((strip * kTileRows + row) ^ (batch_row / 2 % 4 * 8));
}
constexpr int staged_floats(int batch_rows) {
  return batch_rows * 32;
}

// sums[s][j] is the matrix instruction's result for strip s and batch rows 8 · j and on.
template <int kStrips, int kGroups>
__device__ __forceinline__ void stage_sums(const float (&sums)[kStrips][kGroups][4], int lane, float* staged) {
  IMP_UNROLL
  for (int strip = 0; strip < kStrips; ++strip) {
    IMP_UNROLL
    for (int j = 0; j < kGroups; ++j) {
      IMP_UNROLL
      for (int i = 0; i < 4; ++i) {
        staged[staged_at(strip, lane / 4 + i / 2 * 8, j * 8 + lane % 4 * 2 + i % 2)] = sums[strip][j][i];
      }
    }
  }
}

// The factor of a row of x.
static __device__ __forceinline__ float factor_of(const TileWork& work, const OutputTile& output, int batch_row,
                                                  int factor_offset) {
  if (factor_offset == 0) return 1.0F;
  return *reinterpret_cast<const float*>(find_x(work, output, batch_row) + factor_offset);
}

static __device__ __forceinline__ float bias_of(const GemmLaunchTerm& term, std::int64_t n) {
  return term.bias != nullptr && n < term.n ? term.bias[n] : 0.0F;
}

// Writes a warp's part of out: kBatchRows rows of it from the tile's row + first_batch_row on. Multiplies by the rows'
// factors, if they have any at factor_offset, and adds the bias last.
template <int kBatchRows, int kStrips = 2>
__device__ __forceinline__ void write_strips(const TileWork& work, const OutputTile& output, const StripPair& pair,
                                             int first_batch_row, const float* staged, int factor_offset, int lane) {
  const GemmLaunchTerm& term = work.terms[output.term];
  const bool is_gated = work.fusion != GemmFusion::none;
  // A lane writes a row of one strip: every other batch row of a single strip, every batch row if there are two.
  const bool is_one = is_gated || kStrips == 1;
  const int row = lane % kTileRows, strip = is_one ? 0 : lane / kTileRows;
  const std::int64_t n = std::int64_t{strip == 0 ? pair.strip[0] : pair.strip[1]} * kTileRows + row;
  const float bias = bias_of(term, n), up_bias = is_gated ? bias_of(work.terms[1], n) : 0.0F;
  const bool has_bias = term.bias != nullptr, up_has_bias = is_gated && work.terms[1].bias != nullptr;
  const int at_once = is_one ? 2 : 1, side = is_one ? lane / kTileRows : 0;
  for (int base = 0; base < kBatchRows; base += kWarpSize) {
    const float factors = factor_of(work, output, first_batch_row + base + lane, factor_offset);
    for (int i = 0; i < kWarpSize; i += at_once) {
      const float factor = __shfl_sync(kAllLanes, factors, i + side);
      const int batch_row = base + i + side, p = output.first + first_batch_row + batch_row;
      if (p >= output.end || n >= term.n) continue;
      float value = staged[staged_at(strip, row, batch_row)] * factor;
      if (has_bias) value += bias;
      if (is_gated) {
        float up = staged[staged_at(1, row, batch_row)] * factor;
        if (up_has_bias) up += up_bias;
        value = gate_of(work.fusion, value) * up;
      }
      term.out[p * term.out_stride + n] = value;
    }
  }
}

// Offset of a row's factor in x; 0 if it has none.
template <class Step>
constexpr int factor_offset_of(int n_tiles) {
  return Step::kIsBfloat16 ? 0 : n_tiles * kTileElements * 2;
}

}  // namespace imp::cuda
