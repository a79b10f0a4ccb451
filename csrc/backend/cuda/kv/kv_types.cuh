// The element types of the cache for kernels.
#pragma once

#include "backend/cuda/device/arch.cuh"
#include "backend/kv_types.h"
#include "base/error.h"

namespace imp::cuda {

// The type of two elements in a word, and how words are multiplied.
struct KvF16 {
  static constexpr bool kQuantized = false;
  static constexpr std::uint32_t kOnes = 0x3C003C00;
  static constexpr std::uint32_t kExponent = 0x7C00;  // all of its bits set: infinity or NaN

  __device__ static std::uint32_t pack(float low, float high) { return arch::pack_f16(low, high); }
  __device__ static void mma(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
    arch::mma_f16(d, a, b);
  }
};

struct KvBf16 {
  static constexpr bool kQuantized = false;
  static constexpr std::uint32_t kOnes = 0x3F803F80;
  static constexpr std::uint32_t kExponent = 0x7F80;

  __device__ static std::uint32_t pack(float low, float high) { return arch::pack_bf16(low, high); }
  __device__ static void mma(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
    arch::mma_bf16(d, a, b);
  }
};

// Groups of 32 codes with a scale. Code times scale is rounded to float16.
struct KvQ8 : KvF16 {
  static constexpr bool kQuantized = true;
};

// Calls run<Kv>().
template <class Run>
void with_kv_type(KvType type, const Run& run) {
  if (type == KvType::f16) return run.template operator()<KvF16>();
  if (type == KvType::bf16) return run.template operator()<KvBf16>();
  if (type == KvType::q8_0) return run.template operator()<KvQ8>();
  IMP_CHECK(false);  // a pool refuses others
}

// Codes 0 and 1, or 2 and 3, of four, times the scale in both halves of `scales`.
__device__ __forceinline__ std::uint32_t dequantize_codes(std::uint32_t codes, int which, std::uint32_t scales) {
  // 1024 + (code + 128) as float16 has the code's bits in its low bits, with one bit flipped.
  const std::uint32_t turned = codes ^ 0x80808080U;
  const std::uint32_t pair = which == 0 ? turned : turned >> 16;
  const std::uint32_t spread = arch::and_or(pair, 0xFF, arch::and_or(pair << 8, 0xFF0000, 0x64006400));
  constexpr std::uint32_t kOne = 0x3C003C00, kLess = 0xE480E480, kNothing = 0x80008000;  // 1, -1152, -0
  return arch::fma_f16x2(arch::fma_f16x2(spread, kOne, kLess), scales, kNothing);
}

}  // namespace imp::cuda
