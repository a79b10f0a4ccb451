// Decodes tiles of quantized weights to int8 operands of matrix instructions, and to scales.
//
// Lane 4 · g + t holds parts of rows g and g + 8 of a chunk, which is a tile or half of one. It decodes four blocks of
// 32 elements, a quad, at a time. Members of each type:
//   kChunks            chunks of a tile, each of kQuads quads
//   load()             loads the lane's part of a chunk; its first quad is current
//   advance()          makes the next quad current: loops over quads are not unrolled, to save registers
//   fragment(i)        of block i of the quad, the left operand of arch::mma_s8: registers 0 and 2 have row g
//                      (elements 4t … 4t + 3 and 16 + 4t … 16 + 4t + 3 of the block), 1 and 3 row g + 8
//   scales(i)          for both rows: value = scale · code + min
//   mins(i)            if kHasMin
//   half_scales(i)     if kHasHalfScales: integers [row][half] that the codes of each 16 are multiplied by first
// Codes include zero points: they are left-aligned in their bytes, so that flipping the highest bit subtracts the zero
// point; scales shrink by the same shift. For fragment and half_scales, i must be a constant in unrolled loops.
#pragma once

#include "backend/cuda/device/arch.cuh"
#include "backend/cuda/gemm/tiles.h"

namespace imp::cuda {

// The word with this number, without indexed memory access.
__device__ __forceinline__ std::uint32_t word_of(const arch::Vec16& words, int i) {
  const std::uint32_t low = (i & 1) != 0 ? words.word[1] : words.word[0];
  const std::uint32_t high = (i & 1) != 0 ? words.word[3] : words.word[2];
  return (i & 2) != 0 ? high : low;
}
__device__ __forceinline__ void two_f16(std::uint32_t word, float factor, float (&values)[2]) {
  values[0] = arch::f16_to_float(static_cast<std::uint16_t>(word)) * factor;
  values[1] = arch::f16_to_float(static_cast<std::uint16_t>(word >> 16)) * factor;
}
__device__ __forceinline__ arch::Vec16 load_fragment(const std::byte* fragments, int i, int lane) {
  return arch::load_streamed(fragments + i * kFragmentBytes + lane * kLaneBytes);
}

template <DType kType>
struct TileCodes;

template <>
struct TileCodes<DType::Q8_0> {
  using Of = Tile<DType::Q8_0>;
  static constexpr int kTileBytes = Of::kBytes, kChunks = 2, kQuads = 1;
  static constexpr bool kHasMin = false, kHasHalfScales = false;

  arch::Vec16 codes[4], scale_words;

  __device__ __forceinline__ void load(const std::byte* tile, int chunk, int lane) {
    IMP_UNROLL
    for (int i = 0; i < 4; ++i) codes[i] = load_fragment(tile, chunk * 4 + i, lane);
    scale_words = arch::load_streamed(tile + Of::kScales + scale_offset(lane / 4, chunk * 4));
  }
  __device__ __forceinline__ void advance() {}
  __device__ __forceinline__ void fragment(int i, std::uint32_t (&a)[4]) const {
    IMP_UNROLL
    for (int r = 0; r < 4; ++r) a[r] = codes[i].word[r];
  }
  __device__ __forceinline__ void scales(int i, float (&scale)[2]) const {
    two_f16(word_of(scale_words, i), 1.0F, scale);
  }
};

template <>
struct TileCodes<DType::Q4_0> {
  using Of = Tile<DType::Q4_0>;
  static constexpr int kTileBytes = Of::kBytes, kChunks = 1, kQuads = 2;
  static constexpr bool kHasMin = false, kHasHalfScales = false;

  arch::Vec16 codes[4], scale_words[2];

  __device__ __forceinline__ void load(const std::byte* tile, int, int lane) {
    IMP_UNROLL
    for (int i = 0; i < 4; ++i) codes[i] = load_fragment(tile, i, lane);
    IMP_UNROLL
    for (int i = 0; i < 2; ++i) {
      scale_words[i] = arch::load_streamed(tile + Of::kScales + scale_offset(lane / 4, i * 4));
    }
  }
  __device__ __forceinline__ void advance() {
    codes[0] = codes[2];
    codes[1] = codes[3];
    scale_words[0] = scale_words[1];
  }
  __device__ __forceinline__ void fragment(int i, std::uint32_t (&a)[4]) const {
    IMP_UNROLL
    for (int r = 0; r < 4; ++r) {
      const std::uint32_t word = codes[i / 2].word[r];
      a[r] = ((i % 2 != 0 ? word : word << 4) & 0xF0F0F0F0) ^ 0x80808080;  // 16 · (code − 8)
    }
  }
  __device__ __forceinline__ void scales(int i, float (&scale)[2]) const {
    two_f16(word_of(scale_words[0], i), 1.0F / 16, scale);
  }
};

// The 16 bytes before a row's codes in Q4_K and Q5_K: d and dmin, then 6-bit scales and minima. Those of the first four
// blocks are the low bits of two words' bytes. The top two bits of these bytes belong to the other four blocks, whose
// low 4 bits are in the last word.
__device__ __forceinline__ float scale_of_header(const arch::Vec16& header, int i) {
  return arch::f16_to_float(static_cast<std::uint16_t>(header.word[0])) *
         static_cast<float>(header.word[1] >> 8 * i & 0x3F);
}
__device__ __forceinline__ float min_of_header(const arch::Vec16& header, int i) {
  return -arch::f16_to_float(static_cast<std::uint16_t>(header.word[0] >> 16)) *
         static_cast<float>(header.word[2] >> 8 * i & 0x3F);
}
__device__ __forceinline__ void advance_header(arch::Vec16& header) {
  header.word[1] = arch::and_or(header.word[3], 0x0F0F0F0F, header.word[1] >> 2 & 0x30303030);
  header.word[2] = arch::and_or(header.word[3] >> 4, 0x0F0F0F0F, header.word[2] >> 2 & 0x30303030);
}

template <>
struct TileCodes<DType::Q4_K> {
  using Of = Tile<DType::Q4_K>;
  static constexpr int kTileBytes = Of::kBytes, kChunks = 1, kQuads = 2;
  static constexpr bool kHasMin = true, kHasHalfScales = false;

  arch::Vec16 codes[4], headers[2];

  __device__ __forceinline__ void load(const std::byte* tile, int, int lane) {
    IMP_UNROLL
    for (int i = 0; i < 4; ++i) codes[i] = load_fragment(tile, i, lane);
    IMP_UNROLL
    for (int h = 0; h < 2; ++h) headers[h] = arch::load_streamed(tile + Of::kHeaders + header_offset(lane / 4 + 8 * h));
  }
  __device__ __forceinline__ void advance() {
    codes[0] = codes[2];
    codes[1] = codes[3];
    IMP_UNROLL
    for (int h = 0; h < 2; ++h) advance_header(headers[h]);
  }
  __device__ __forceinline__ void fragment(int i, std::uint32_t (&a)[4]) const {
    IMP_UNROLL
    for (int r = 0; r < 4; ++r) a[r] = codes[i / 2].word[r] >> i % 2 * 4 & 0x0F0F0F0F;
  }
  __device__ __forceinline__ void scales(int i, float (&scale)[2]) const {
    IMP_UNROLL
    for (int h = 0; h < 2; ++h) scale[h] = scale_of_header(headers[h], i);
  }
  __device__ __forceinline__ void mins(int i, float (&min)[2]) const {
    IMP_UNROLL
    for (int h = 0; h < 2; ++h) min[h] = min_of_header(headers[h], i);
  }
};

template <>
struct TileCodes<DType::Q5_K> {
  using Of = Tile<DType::Q5_K>;
  static constexpr int kTileBytes = Of::kBytes, kChunks = 1, kQuads = 2;
  static constexpr bool kHasMin = true, kHasHalfScales = false;

  arch::Vec16 codes[4], fifth_bits, headers[2];

  __device__ __forceinline__ void load(const std::byte* tile, int, int lane) {
    IMP_UNROLL
    for (int i = 0; i < 4; ++i) codes[i] = load_fragment(tile, i, lane);
    fifth_bits = load_fragment(tile + Of::kFifthBits, 0, lane);
    IMP_UNROLL
    for (int h = 0; h < 2; ++h) headers[h] = arch::load_streamed(tile + Of::kHeaders + header_offset(lane / 4 + 8 * h));
  }
  __device__ __forceinline__ void advance() {
    codes[0] = codes[2];
    codes[1] = codes[3];
    IMP_UNROLL
    for (int r = 0; r < 4; ++r) fifth_bits.word[r] >>= 4;
    IMP_UNROLL
    for (int h = 0; h < 2; ++h) advance_header(headers[h]);
  }
  __device__ __forceinline__ void fragment(int i, std::uint32_t (&a)[4]) const {
    IMP_UNROLL
    for (int r = 0; r < 4; ++r) {
      const std::uint32_t low = codes[i / 2].word[r] >> i % 2 * 4 & 0x0F0F0F0F;
      const std::uint32_t bits = fifth_bits.word[r];
      a[r] = arch::and_or(bits << (4 - i), 0x10101010, low);
    }
  }
  __device__ __forceinline__ void scales(int i, float (&scale)[2]) const {
    IMP_UNROLL
    for (int h = 0; h < 2; ++h) scale[h] = scale_of_header(headers[h], i);
  }
  __device__ __forceinline__ void mins(int i, float (&min)[2]) const {
    IMP_UNROLL
    for (int h = 0; h < 2; ++h) min[h] = min_of_header(headers[h], i);
  }
};

template <>
struct TileCodes<DType::Q6_K> {
  using Of = Tile<DType::Q6_K>;
  static constexpr int kTileBytes = Of::kBytes, kChunks = 2, kQuads = 1;
  static constexpr bool kHasMin = false, kHasHalfScales = true;

  arch::Vec16 codes[2], high_bits, scale_words;
  std::uint32_t factors;

  __device__ __forceinline__ void load(const std::byte* tile, int chunk, int lane) {
    IMP_UNROLL
    for (int i = 0; i < 2; ++i) codes[i] = load_fragment(tile, chunk * 2 + i, lane);
    high_bits = load_fragment(tile + Of::kHighBits, chunk, lane);
    scale_words = arch::load_streamed(tile + Of::kScales + scale_offset(lane / 4, chunk * 4));
    factors = *reinterpret_cast<const std::uint32_t*>(tile + Of::kFactors + factor_offset(lane / 4));
  }
  __device__ __forceinline__ void advance() {}
  __device__ __forceinline__ void fragment(int i, std::uint32_t (&a)[4]) const {
    IMP_UNROLL
    for (int r = 0; r < 4; ++r) {
      const std::uint32_t word = codes[i / 2].word[r];
      const std::uint32_t low = (i % 2 != 0 ? word >> 2 : word << 2) & 0x3C3C3C3C;
      a[r] = arch::and_or(high_bits.word[r] << (6 - 2 * i), 0xC0C0C0C0, low) ^ 0x80808080;  // 4 · (code − 32)
    }
  }
  __device__ __forceinline__ void scales(int, float (&scale)[2]) const { two_f16(factors, 1.0F / 4, scale); }
  __device__ __forceinline__ void half_scales(int i, int (&scale)[2][2]) const {
    const std::uint32_t word = word_of(scale_words, i);
    IMP_UNROLL
    for (int h = 0; h < 2; ++h) {
      scale[h][0] = static_cast<std::int8_t>(word >> 16 * h);
      scale[h][1] = static_cast<std::int8_t>(word >> (16 * h + 8));
    }
  }
};

}  // namespace imp::cuda
