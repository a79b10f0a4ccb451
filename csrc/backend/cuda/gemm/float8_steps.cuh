// F8_E4M3 weights of tile16 as float16 operands of matrix instructions (weight_steps.cuh). Codes and units are exact;
// scales, and then weights, are rounded to float16.
#pragma once

#include "backend/cuda/gemm/e4m3.cuh"
#include "backend/cuda/gemm/weight_steps.cuh"

namespace imp::cuda {

// Float16 scales are multiples of each row's unit, chosen so that the row's greatest is 2^15. A scale shared by a whole
// row is exact. Others may be 2^12 times smaller before their smallest weights become subnormal.
struct RowUnits {
  static constexpr int kMinScale = (127 - 100) << 23;  // 2^-100 as bits: the only smaller one is 0 (quant::kMinF8Scale)

  float per_unit[2];  // 1 / unit of the lane's rows

  __device__ __forceinline__ void begin(const std::byte* tiles, int n_tiles, int lane) {
    using Of = Tile<DType::F8_E4M3>;
    int greatest[2] = {kMinScale, kMinScale};  // as bits
    for (int i = lane % 4; i < n_tiles; i += 4) {
      const std::byte* const scales = tiles + static_cast<std::ptrdiff_t>(i) * Of::kBytes + Of::kScales;
      IMP_UNROLL
      for (int pair = 0; pair < kFloatBlocks; pair += 2) {
        const arch::Vec16 words = load_cached(scales + float_scale_offset(lane / 4, pair));
        IMP_UNROLL
        for (int j = 0; j < 4; ++j) {
          const int bits = static_cast<int>(words.word[j] & 0x7fffffff);
          greatest[j % 2] = bits > greatest[j % 2] ? bits : greatest[j % 2];
        }
      }
    }
    IMP_UNROLL
    for (int row = 0; row < 2; ++row) {
      IMP_UNROLL
      for (int delta = 1; delta < 4; delta *= 2) {
        const int other = __shfl_xor_sync(kAllLanes, greatest[row], delta);
        greatest[row] = other > greatest[row] ? other : greatest[row];
      }
      per_unit[row] = 32768.0F / __int_as_float(greatest[row]);
    }
  }
  template <int kGroups>
  __device__ __forceinline__ void finish(float (&sums)[kGroups][4]) const {
    IMP_UNROLL
    for (int row = 0; row < 2; ++row) {
      const float unit = kScaledHalvesFactor / per_unit[row];
      IMP_UNROLL
      for (int group = 0; group < kGroups; ++group) {
        sums[group][2 * row] *= unit;
        sums[group][2 * row + 1] *= unit;
      }
    }
  }
};

template <>
struct WeightStep<DType::F8_E4M3> : RowUnits {
  static constexpr bool kIsBfloat16 = false;

  arch::Vec16 codes[2];
  float2 scales;  // of the lane's rows

  __device__ __forceinline__ void load(const std::byte* tile, int step, int lane) {
    using Of = Tile<DType::F8_E4M3>;
    IMP_UNROLL
    for (int i = 0; i < 2; ++i) {
      codes[i] = arch::load_streamed(tile + (step * 2 + i) * kFragmentBytes + lane * kLaneBytes);
    }
    scales = *reinterpret_cast<const float2*>(tile + Of::kScales + float_scale_offset(lane / 4, step));
  }
  __device__ __forceinline__ void make_words(int, int, ScaleWords& words) const {
    const float in_units[2] = {scales.x * per_unit[0], scales.y * per_unit[1]};
    IMP_UNROLL
    for (int row = 0; row < 2; ++row) words[0][row] = arch::pack_f16(in_units[row], in_units[row]);
  }
  __device__ __forceinline__ void decode(int product, int, const ScaleWords& words, Fragment& a) const {
    scaled_fragment(codes[product / 2], product % 2, a);
    IMP_UNROLL
    for (int r = 0; r < 4; ++r) a[r] = arch::fma_f16x2(a[r], words[0][r % 2], 0);
  }
};

}  // namespace imp::cuda
