// Float16 or bfloat16 weights times any number of rows of the same type, or F8_E4M3 times float16, with matrix
// instructions (mma).
//
// Split-K inside a block (sliced-K): a block computes 16 columns of out for 8 · kGroups rows, its warps slices of k.
// Weights are the left operand of mma, as tiles hold them; rows of x are the columns of the right one. Lane 4 · g + t
// has sums of rows g and g + 8 of the strip by columns 2t and 2t + 1 of each group.
#pragma once

#include "backend/cuda/gemm/e4m3.cuh"
#include "backend/cuda/gemm/tile_work.cuh"

namespace imp::cuda {

constexpr int kProductElements = 16;  // of k per instruction

// Adds a product of 16 elements to a group's sums. x points to the first element of the lane's column.
template <bool kIsBfloat16>
__device__ __forceinline__ void add_product(const std::uint32_t (&a)[4], const std::byte* x, float (&sums)[4]) {
  const std::uint32_t b[2] = {*reinterpret_cast<const std::uint32_t*>(x),
                              *reinterpret_cast<const std::uint32_t*>(x + kProductElements)};
  if constexpr (kIsBfloat16) {
    arch::mma_bf16(sums, a, b);
  } else {
    arch::mma_f16(sums, a, b);
  }
}

// A lane's part of a chunk of weights, by product.
template <DType kType>
struct Chunk {
  static constexpr int kProducts = 4, kElements = kProducts * kProductElements;

  arch::Vec16 products[kProducts];

  __device__ __forceinline__ void load(const std::byte* strip, int chunk, int lane) {
    IMP_UNROLL
    for (int i = 0; i < kProducts; ++i) {
      const std::byte* const fragment = strip + static_cast<std::ptrdiff_t>(chunk * kProducts + i) * kFragmentBytes;
      products[i] = arch::load_streamed(fragment + lane * kLaneBytes);
    }
  }
  template <int kGroups>
  __device__ __forceinline__ void add(const std::byte* const (&x)[kGroups], int first_element,
                                      float (&sums)[kGroups][4]) const {
    IMP_UNROLL
    for (int i = 0; i < kProducts; ++i) {
      IMP_UNROLL
      for (int group = 0; group < kGroups; ++group) {
        const std::byte* const from = x[group] + (first_element + i * kProductElements) * 2;
        add_product<kType == DType::BF16>(products[i].word, from, sums[group]);
      }
    }
  }
};

// Two blocks with a scale per row. Codes are exact. Rounding happens in a block's sum and in the addition of its scaled
// sum.
template <>
struct Chunk<DType::F8_E4M3> {
  static constexpr int kElements = 2 * kFloatBlockElements, kFragments = kElements / kBlockElements;

  arch::Vec16 codes[kFragments];
  arch::Vec16 scales;  // per block, of the lane's two rows

  __device__ __forceinline__ void load(const std::byte* strip, int chunk, int lane) {
    using Of = Tile<DType::F8_E4M3>;
    constexpr int kChunks = kTileElements / kElements;
    const std::byte* const tile = strip + static_cast<std::ptrdiff_t>(chunk / kChunks) * Of::kBytes;
    const int in_tile = chunk % kChunks;
    IMP_UNROLL
    for (int i = 0; i < kFragments; ++i) {
      codes[i] = arch::load_streamed(tile + (in_tile * kFragments + i) * kFragmentBytes + lane * kLaneBytes);
    }
    scales = arch::load_streamed(tile + Of::kScales + float_scale_offset(lane / 4, in_tile * 2));
  }
  template <int kGroups>
  __device__ __forceinline__ void add(const std::byte* const (&x)[kGroups], int first_element,
                                      float (&sums)[kGroups][4]) const {
    constexpr int kProducts = kFloatBlockElements / kProductElements;
    IMP_UNROLL
    for (int block = 0; block < 2; ++block) {
      std::uint32_t a[kProducts][4];
      IMP_UNROLL
      for (int i = 0; i < kProducts; ++i) scaled_fragment(codes[block * 2 + i / 2], i % 2, a[i]);
      const float scale[2] = {__uint_as_float(scales.word[block * 2]) * kScaledHalvesFactor,
                              __uint_as_float(scales.word[block * 2 + 1]) * kScaledHalvesFactor};
      IMP_UNROLL
      for (int group = 0; group < kGroups; ++group) {
        const std::byte* const from = x[group] + (first_element + block * kFloatBlockElements) * 2;
        float of_block[4] = {};
        IMP_UNROLL
        for (int i = 0; i < kProducts; ++i) add_product<false>(a[i], from + i * kProductElements * 2, of_block);
        IMP_UNROLL
        for (int i = 0; i < 4; ++i) sums[group][i] = fmaf(of_block[i], scale[i / 2], sums[group][i]);
      }
    }
  }
};

// Stores the sums where the slices are merged.
template <int kGroups>
__device__ __forceinline__ void store_sums(const float (&of_groups)[kGroups][4], float* sums, int lane) {
  IMP_UNROLL
  for (int group = 0; group < kGroups; ++group) {
    IMP_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int batch_row = group * 8 + lane % 4 * 2 + i % 2;
      sums[batch_row * kSumStride + lane / 4 + i / 2 * 8] = of_groups[group][i];
    }
  }
}

// Loads the next chunk of weights during the products of this one.
template <DType kType, int kGroups>
__global__ void __launch_bounds__(kTileThreads, 2) mma_kernel(const __grid_constant__ TileWork work) {
  constexpr int kBatchRows = kGroups * 8;
  IMP_DYNAMIC_SHARED(float, shared_sums);
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize, slice = static_cast<int>(threadIdx.x) / kWarpSize;

  OutputTile output;
  if (!find_output_tile(work, kBatchRows, &output)) return;
  const bool is_pair = work.fusion != GemmFusion::none;
  const std::byte* strip = find_strip(work, output, output.term, Tile<kType>::kBytes);
  const std::byte* const second = is_pair ? find_strip(work, output, 1, Tile<kType>::kBytes) : strip;
  if (strip == nullptr || second == nullptr) return;

  const TileRange tiles = slice_of(work.n_tiles, slice);
  constexpr int kTileChunks = kTileElements / Chunk<kType>::kElements;
  const int begin = tiles.begin * kTileChunks, end = tiles.end * kTileChunks;
  Chunk<kType> next;
  next.load(strip, begin, lane);
  const std::byte* x[kGroups];  // of column g, from element 2t on
  IMP_UNROLL
  for (int group = 0; group < kGroups; ++group) x[group] = find_x(work, output, group * 8 + lane / 4) + lane % 4 * 4;

  for (int product = 0;; ++product) {
    float sums[kGroups][4] = {};
    for (int chunk = begin; chunk < end; ++chunk) {
      const Chunk<kType> weights = next;
      if (chunk + 1 < end) next.load(strip, chunk + 1, lane);
      weights.add(x, chunk * Chunk<kType>::kElements, sums);
    }
    store_sums(sums, sums_of(shared_sums, product, slice, kBatchRows), lane);
    if (product == (is_pair ? 1 : 0)) break;
    strip = second;
    next.load(strip, begin, lane);
  }
  __syncthreads();
  // Rows of float16 have their factor after their elements.
  write_out<kBatchRows>(work, output, shared_sums, kType == DType::BF16 ? 0 : work.n_tiles * kTileElements * 2);
}

}  // namespace imp::cuda
