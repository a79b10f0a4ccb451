// Decodes tile16 weights to float16 (BF16: bfloat16) left operands of matrix instructions: a warp's 16 rows, 64
// elements at a time.
//
// A step is what a lane loads of 16 rows by 64 elements. It computes the step's scales once, and then the fragments of
// four products of 16 elements.
// For integer codes a lane has elements 4 · t to 4 · t + 3 of each 16, and its fragment takes them in the order 0, 2,
// 1, 3. So the elements of a product are the even ones of 16, then the odd ones, and activations use the same order
// (f16_even_odd). Float weights are in natural order.
//
// Rounding: codes are exact in float16. Scales that are products themselves (K types) are rounded once, and so are
// minima. A weight is then one fused (code · scale - minimum), rounded once. Products of integers and a float16 are
// exact even if they are subnormal.
#pragma once

#include "backend/cuda/device/arch.cuh"
#include "backend/cuda/device/warp.cuh"
#include "backend/cuda/gemm/tiles.h"

namespace imp::cuda {

constexpr int kStepElements = 64, kTileSteps = kTileElements / kStepElements;
constexpr int kStepProducts = kStepElements / 16;

using Fragment = std::uint32_t[4];
// A word for each (block, row) of a step, for the lane's two rows.
using ScaleWords = std::uint32_t[2][2];

__device__ __forceinline__ arch::Vec16 load_cached(const std::byte* from) {
  return *reinterpret_cast<const arch::Vec16*>(from);
}
__device__ __forceinline__ std::uint16_t load_half(const std::byte* from) {
  return *reinterpret_cast<const std::uint16_t*>(from);
}

// Converts codes to float16 without a conversion instruction: up to 10 bits become the last bits of 1024, whose last
// place is 1. Two at once; factor and offset restore the code exactly.
constexpr std::uint32_t kBehind1024 = 0x64006400;
constexpr std::uint32_t kOnes = 0x3c003c00, kSixteenths = 0x2c002c00;
constexpr std::uint32_t kMinus1024 = 0xe400e400, kMinus64 = 0xd400d400;

__device__ __forceinline__ std::uint32_t weights_of(std::uint32_t pair, std::uint32_t factor, std::uint32_t offset,
                                                    std::uint32_t scale, std::uint32_t minus_minimum) {
  return arch::fma_f16x2(arch::fma_f16x2(pair, factor, offset), scale, minus_minimum);
}

// The scales of a row's codes, each twice in its word.
struct CodeScale {
  std::uint32_t scale = 0, minus_minimum = 0;
};

template <int kLeft>
__device__ __forceinline__ std::uint32_t shifted_left(std::uint32_t bits) {
  return kLeft >= 0 ? bits << (kLeft & 31) : bits >> (-kLeft & 31);
}

// Four weights of a step's block: elements 0 and 2, then 1 and 3. `codes` has their low four bits: the even block in
// the low halves of its bytes, the odd block in the high halves. `more` has kMoreBits higher bits per block, from the
// first bit of each byte on. The value of a code is kZero more than its bits.
template <int kBlock, int kMoreBits, int kZero>
__device__ __forceinline__ void nibble_weights(std::uint32_t codes, std::uint32_t more, const CodeScale& by,
                                               std::uint32_t& even, std::uint32_t& odd) {
  // Codes of the odd block are multiplied by 16.
  constexpr int kPlace = 4 * kBlock, kMoreLeft = kPlace + 4 - kBlock * kMoreBits;
  constexpr std::uint32_t kMask = 0x000f000fU << kPlace,
                          kMoreMask = ((1U << kMoreBits) - 1) * 0x00010001U << (kPlace + 4);
  constexpr std::uint32_t kFactor = kBlock == 0 ? kOnes : kSixteenths;
  constexpr std::uint32_t kOffset = kBlock == 0 ? kMinus1024 + kZero * 0x10001U : kMinus64 + kZero * 0x100010U;
  even = arch::and_or(codes, kMask, kBehind1024);
  odd = arch::and_or(codes >> 8, kMask, kBehind1024);
  if constexpr (kMoreBits > 0) {
    even = arch::and_or(shifted_left<kMoreLeft>(more), kMoreMask, even);
    odd = arch::and_or(shifted_left<kMoreLeft - 8>(more), kMoreMask, odd);
  }
  even = weights_of(even, kFactor, kOffset, by.scale, by.minus_minimum);
  odd = weights_of(odd, kFactor, kOffset, by.scale, by.minus_minimum);
}

// The fragment of a product. scale_of(row) returns the CodeScale of its 16 elements in one of a lane's two rows.
template <int kMoreBits, int kZero, class ScaleOf>
__device__ __forceinline__ void nibble_fragment(int product, const arch::Vec16& codes, const arch::Vec16& more,
                                                int more_shift, const ScaleOf& scale_of, Fragment& a) {
  const int half = product % 2;
  IMP_UNROLL
  for (int row = 0; row < 2; ++row) {
    const std::uint32_t word = codes.word[row + 2 * half], above = more.word[row + 2 * half] >> more_shift;
    if (product < 2) {
      nibble_weights<0, kMoreBits, kZero>(word, above, scale_of(row), a[row], a[row + 2]);
    } else {
      nibble_weights<1, kMoreBits, kZero>(word, above, scale_of(row), a[row], a[row + 2]);
    }
  }
}

// A word for each (block, row) of a step. Lane t of a group of four computed that of block t / 2 and row group + 8 · (t
// % 2).
__device__ __forceinline__ void share_words(std::uint32_t mine, int lane, ScaleWords& words) {
  IMP_UNROLL
  for (int i = 0; i < 4; ++i) {
    words[i / 2][i % 2] = __shfl_sync(kAllLanes, mine, (lane & ~3) + i);
  }
}

template <DType kType>
struct WeightStep;

// For weights that float16 represents in full: nothing to prepare before a step, and factor 1 after it.
struct WithoutUnits {
  __device__ __forceinline__ void begin(const std::byte*, int, int) {}
  template <int kGroups>
  __device__ __forceinline__ void finish(float (&)[kGroups][4]) const {}
};

template <>
struct WeightStep<DType::F16> : WithoutUnits {
  static constexpr bool kIsBfloat16 = false;

  arch::Vec16 elements[kStepProducts];

  __device__ __forceinline__ void load(const std::byte* tile, int step, int lane) {
    IMP_UNROLL
    for (int i = 0; i < kStepProducts; ++i) {
      elements[i] = arch::load_streamed(tile + (step * kStepProducts + i) * kFragmentBytes + lane * kLaneBytes);
    }
  }
  __device__ __forceinline__ void make_words(int, int, ScaleWords&) const {}
  // Copies to registers that the next load does not write: products in flight may still read them.
  __device__ __forceinline__ void decode(int product, int, const ScaleWords&, Fragment& a) const {
    IMP_UNROLL
    for (int r = 0; r < 4; ++r) a[r] = arch::copied(elements[product].word[r]);
  }
};

template <>
struct WeightStep<DType::BF16> : WeightStep<DType::F16> {
  static constexpr bool kIsBfloat16 = true;
};

// A float16 per block and row; both rows in one word.
struct BlockScales {
  uint2 of_block;

  __device__ __forceinline__ void load(const std::byte* scales, int step, int lane) {
    of_block = *reinterpret_cast<const uint2*>(scales + scale_offset(lane / 4, 2 * step));
  }
  __device__ __forceinline__ CodeScale of(int block, int row) const {
    const std::uint32_t both = block == 0 ? of_block.x : of_block.y;
    return {row == 0 ? arch::repeat_low(both) : arch::repeat_high(both), 0};
  }
};

template <>
struct WeightStep<DType::Q8_0> : WithoutUnits {
  static constexpr bool kIsBfloat16 = false;

  arch::Vec16 codes[2];
  BlockScales scales;

  __device__ __forceinline__ void load(const std::byte* tile, int step, int lane) {
    IMP_UNROLL
    for (int i = 0; i < 2; ++i) {
      codes[i] = arch::load_streamed(tile + (step * 2 + i) * kFragmentBytes + lane * kLaneBytes);
    }
    scales.load(tile + Tile<DType::Q8_0>::kScales, step, lane);
  }
  __device__ __forceinline__ void make_words(int, int, ScaleWords&) const {}
  __device__ __forceinline__ void decode(int product, int, const ScaleWords&, Fragment& a) const {
    constexpr std::uint32_t kMinus1152 = kMinus1024 + 0x00800080;
    IMP_UNROLL
    for (int row = 0; row < 2; ++row) {
      const std::uint32_t scale = scales.of(product / 2, row).scale;
      const std::uint32_t word = codes[product / 2].word[row + 2 * (product % 2)] ^ 0x80808080U;  // code + 128
      IMP_UNROLL
      for (int odd = 0; odd < 2; ++odd) {
        const std::uint32_t pair = arch::and_or(word >> (8 * odd), 0x00ff00ff, kBehind1024);
        a[row + 2 * odd] = weights_of(pair, kOnes, kMinus1152, scale, 0);
      }
    }
  }
};

template <>
struct WeightStep<DType::Q4_0> : WithoutUnits {
  static constexpr bool kIsBfloat16 = false;

  arch::Vec16 codes;
  BlockScales scales;

  __device__ __forceinline__ void load(const std::byte* tile, int step, int lane) {
    codes = arch::load_streamed(tile + step * kFragmentBytes + lane * kLaneBytes);
    scales.load(tile + Tile<DType::Q4_0>::kScales, step, lane);
  }
  __device__ __forceinline__ void make_words(int, int, ScaleWords&) const {}
  __device__ __forceinline__ void decode(int product, int, const ScaleWords&, Fragment& a) const {
    const auto scale_of = [this, product](int row) { return scales.of(product / 2, row); };
    nibble_fragment<0, 8>(product, codes, codes, 0, scale_of, a);
  }
};

// Scale and minimum of a block (0 to 7) from a row's header, each multiplied out and rounded to float16: the scale in
// the low half, the negated minimum in the high half.
__device__ __forceinline__ std::uint32_t header_word(const arch::Vec16& header, int block) {
  const int shift = 8 * (block % 4);
  const std::uint32_t first = header.word[1] >> shift, second = header.word[2] >> shift,
                      third = header.word[3] >> shift;
  std::uint32_t scale = first & 63, minimum = second & 63;
  if (block >= 4) {
    scale = (third & 15) | (first >> 2 & 48);
    minimum = (third >> 4 & 15) | (second >> 2 & 48);
  }
  const float factor = arch::f16_to_float(static_cast<std::uint16_t>(header.word[0]));
  const float of_minimum = arch::f16_to_float(static_cast<std::uint16_t>(header.word[0] >> 16));
  return arch::pack_f16(factor * static_cast<float>(scale), -(of_minimum * static_cast<float>(minimum)));
}

// Shared by Q4_K and Q5_K: words of a scale and a minimum. One lane of four computes each for all.
struct HeaderScales {
  arch::Vec16 header;  // of the row whose words this lane computes

  __device__ __forceinline__ void load(const std::byte* headers, int lane) {
    header = load_cached(headers + header_offset(lane / 4 + 8 * (lane % 2)));
  }
  __device__ __forceinline__ void make_words(int step, int lane, ScaleWords& words) const {
    share_words(header_word(header, 2 * step + lane % 4 / 2), lane, words);
  }
  static __device__ __forceinline__ CodeScale of(std::uint32_t word) {
    return {arch::repeat_low(word), arch::repeat_high(word)};
  }
};

template <>
struct WeightStep<DType::Q4_K> : WithoutUnits {
  static constexpr bool kIsBfloat16 = false;

  arch::Vec16 codes;
  HeaderScales scales;

  __device__ __forceinline__ void load(const std::byte* tile, int step, int lane) {
    codes = arch::load_streamed(tile + step * kFragmentBytes + lane * kLaneBytes);
    scales.load(tile + Tile<DType::Q4_K>::kHeaders, lane);
  }
  __device__ __forceinline__ void make_words(int step, int lane, ScaleWords& words) const {
    scales.make_words(step, lane, words);
  }
  __device__ __forceinline__ void decode(int product, int, const ScaleWords& words, Fragment& a) const {
    const auto scale_of = [&](int row) { return HeaderScales::of(words[product / 2][row]); };
    nibble_fragment<0, 0>(product, codes, codes, 0, scale_of, a);
  }
};

template <>
struct WeightStep<DType::Q5_K> : WithoutUnits {
  static constexpr bool kIsBfloat16 = false;

  arch::Vec16 codes;
  arch::Vec16 fifth_bits;  // of a whole tile: a bit per block in each byte
  HeaderScales scales;

  __device__ __forceinline__ void load(const std::byte* tile, int step, int lane) {
    codes = arch::load_streamed(tile + step * kFragmentBytes + lane * kLaneBytes);
    fifth_bits = load_cached(tile + Tile<DType::Q5_K>::kFifthBits + lane * kLaneBytes);
    scales.load(tile + Tile<DType::Q5_K>::kHeaders, lane);
  }
  __device__ __forceinline__ void make_words(int step, int lane, ScaleWords& words) const {
    scales.make_words(step, lane, words);
  }
  __device__ __forceinline__ void decode(int product, int step, const ScaleWords& words, Fragment& a) const {
    const auto scale_of = [&](int row) { return HeaderScales::of(words[product / 2][row]); };
    nibble_fragment<1, 0>(product, codes, fifth_bits, 2 * step, scale_of, a);
  }
};

template <>
struct WeightStep<DType::Q6_K> : WithoutUnits {
  static constexpr bool kIsBfloat16 = false;

  arch::Vec16 codes;
  arch::Vec16 high_bits;  // of half a tile: two bits per block in each byte
  std::uint16_t scales;   // of the word that this lane computes: two int8
  std::uint16_t factor;

  __device__ __forceinline__ void load(const std::byte* tile, int step, int lane) {
    using Parts = Tile<DType::Q6_K>;
    const int row = lane / 4 + 8 * (lane % 2);
    codes = arch::load_streamed(tile + step * kFragmentBytes + lane * kLaneBytes);
    high_bits = load_cached(tile + Parts::kHighBits + step / 2 * kFragmentBytes + lane * kLaneBytes);
    scales = load_half(tile + Parts::kScales + scale_offset(row, 2 * step + lane % 4 / 2));
    factor = load_half(tile + Parts::kFactors + factor_offset(row));
  }
  // A word has the scales of both halves of a block.
  __device__ __forceinline__ void make_words(int, int lane, ScaleWords& words) const {
    const float by = arch::f16_to_float(factor);
    const auto scale = [by](int code) { return by * static_cast<float>(static_cast<std::int8_t>(code)); };
    share_words(arch::pack_f16(scale(scales & 255), scale(scales >> 8)), lane, words);
  }
  __device__ __forceinline__ void decode(int product, int step, const ScaleWords& words, Fragment& a) const {
    const auto scale_of = [&](int row) {
      const std::uint32_t both = words[product / 2][row];
      return CodeScale{product % 2 == 0 ? arch::repeat_low(both) : arch::repeat_high(both), 0};
    };
    nibble_fragment<2, 32>(product, codes, high_bits, step % 2 * 4, scale_of, a);
  }
};

}  // namespace imp::cuda
