// What C++ cannot say of a GPU's instructions, once as PTX and once as plain code for the emulator. Kernels use these
// names and nothing below them.
#pragma once

#include <cstddef>
#include <cstdint>

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#define IMP_UNROLL _Pragma("unroll")
#define IMP_ROLLED _Pragma("unroll 1")
#define IMP_DYNAMIC_SHARED(type, name)                                   \
  extern __shared__ __align__(1024) unsigned char imp_dynamic_shared_[]; \
  type* const name = reinterpret_cast<type*>(imp_dynamic_shared_)
#else
#include "backend/cuda/emu/emu.h"
#include "tensor/half.h"
#define IMP_UNROLL
#define IMP_ROLLED
#define IMP_DYNAMIC_SHARED(type, name) type* const name = reinterpret_cast<type*>(imp::cuda::emu::dynamic_shared())
#endif

namespace imp::cuda::arch {

// 16 bytes, the most that one load moves.
struct alignas(16) Vec16 {
  std::uint32_t word[4];
};

#ifdef __CUDACC__

__device__ __forceinline__ float f16_to_float(std::uint16_t bits) {
  return __half2float(__ushort_as_half(bits));
}
__device__ __forceinline__ float bf16_to_float(std::uint16_t bits) {
  return __uint_as_float(static_cast<unsigned>(bits) << 16);
}
// To nearest, ties to even.
__device__ __forceinline__ std::uint16_t float_to_f16(float value) {
  return __half_as_ushort(__float2half_rn(value));
}
__device__ __forceinline__ std::uint16_t float_to_bf16(float value) {
  return __bfloat16_as_ushort(__float2bfloat16_rn(value));
}
// The first argument in the lower half.
__device__ __forceinline__ std::uint32_t pack_f16(float low, float high) {
  const __half2 pair = __floats2half2_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}
__device__ __forceinline__ std::uint32_t pack_bf16(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}
// Of both halves: a · b + c, rounded once.
__device__ __forceinline__ std::uint32_t fma_f16x2(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  std::uint32_t d;
  asm("fma.rn.f16x2 %0,%1,%2,%3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}
// 2^x within 2 ulp; 1 for zeros, 0 where the result would be subnormal, NaN for NaN. Its bits are the device's own.
__device__ __forceinline__ float exp2_near(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0,%1;" : "=f"(y) : "f"(x));
  return y;
}
// 1 / x within 1 ulp; 0 for infinity. Its bits are the device's own.
__device__ __forceinline__ float reciprocal_near(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0,%1;" : "=f"(y) : "f"(x));
  return y;
}
// Bits of a where the mask has them, else of b.
__device__ __forceinline__ std::uint32_t and_or(std::uint32_t value, std::uint32_t mask, std::uint32_t bits) {
  std::uint32_t d;
  asm("lop3.b32 %0,%1,%2,%3,0xea;" : "=r"(d) : "r"(value), "r"(mask), "r"(bits));
  return d;
}
// The same in a register of its own: what writes `value` next waits for no reader of this.
__device__ __forceinline__ std::uint32_t copied(std::uint32_t value) {
  std::uint32_t d;
  asm volatile("mov.b32 %0,%1;" : "=r"(d) : "r"(value));
  return d;
}
// Both halves as the lower, as the upper.
__device__ __forceinline__ std::uint32_t repeat_low(std::uint32_t pair) {
  return __byte_perm(pair, 0, 0x1010);
}
__device__ __forceinline__ std::uint32_t repeat_high(std::uint32_t pair) {
  return __byte_perm(pair, 0, 0x3232);
}

// d[16x8] += a[16x16] · b[16x8], float32 sums.
__device__ __forceinline__ void mma_f16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ __forceinline__ void mma_bf16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
// d[16x8] += a[16x32] · b[32x8] of int8, exact.
__device__ __forceinline__ void mma_s8(int (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
               : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
// d[16x8] += a[16x16] · b[16x8] of int8, exact: half the depth of mma_s8, with two registers of a and one of b.
__device__ __forceinline__ void mma_s8_k16(int (&d)[4], const std::uint32_t (&a)[2], std::uint32_t b) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3},{%4,%5},{%6},{%0,%1,%2,%3};"
               : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(b));
}

__device__ __forceinline__ std::uint32_t shared_address(const void* shared) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
}
// Four 8x8 matrices of 16-bit elements: lane l gives the address of row l % 8 of matrix l / 8 (16 bytes each), and gets
// of matrix i, in d[i], elements 2 · (l % 4) and the next of row l / 4. Transposed: of column l / 4.
__device__ __forceinline__ void load_matrices(std::uint32_t (&d)[4], const void* shared_row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3},[%4];"
               : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
               : "r"(shared_address(shared_row)));
}
__device__ __forceinline__ void load_matrices_transposed(std::uint32_t (&d)[4], const void* shared_row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3},[%4];"
               : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
               : "r"(shared_address(shared_row)));
}

// Copies 16 bytes to shared memory beside the thread; zeros where it does not exist. `from` is then not read.
__device__ __forceinline__ void begin_copy16(void* shared, const void* from, bool exists = true) {
  asm volatile("cp.async.cg.shared.global [%0],[%1],16,%2;" ::"r"(shared_address(shared)), "l"(from),
               "r"(exists ? 16 : 0)
               : "memory");
}
__device__ __forceinline__ void end_copy_group() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Until at most this many of the thread's groups are under way.
template <int kUnderWay>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kUnderWay) : "memory");
}

// Read once and not again soon: passes the first-level cache by.
__device__ __forceinline__ Vec16 load_streamed(const void* from) {
  Vec16 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3},[%4];"
               : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
               : "l"(from));
  return v;
}

// See LaunchShape::overlaps_predecessor.
__device__ __forceinline__ void wait_for_predecessor() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}
__device__ __forceinline__ void let_successor_begin() {
  asm volatile("griddepcontrol.launch_dependents;");
}

#else

inline float f16_to_float(std::uint16_t bits) {
  return f16_to_f32(bits);
}
inline float bf16_to_float(std::uint16_t bits) {
  return bf16_to_f32(bits);
}
inline std::uint16_t float_to_f16(float value) {
  return f32_to_f16(value);
}
inline std::uint16_t float_to_bf16(float value) {
  return f32_to_bf16(value);
}
inline std::uint32_t pack_f16(float low, float high) {
  return f32_to_f16(low) | static_cast<std::uint32_t>(f32_to_f16(high)) << 16;
}
inline std::uint32_t pack_bf16(float low, float high) {
  return f32_to_bf16(low) | static_cast<std::uint32_t>(f32_to_bf16(high)) << 16;
}
inline std::uint32_t fma_f16x2(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  const auto one = [](std::uint16_t x, std::uint16_t y, std::uint16_t z) {
    // Exact in double but for sums of very different sizes; rounded to odd on the way to float, so that the second
    // rounding is the only one.
    const double exact =
        static_cast<double>(f16_to_f32(x)) * static_cast<double>(f16_to_f32(y)) + static_cast<double>(f16_to_f32(z));
    auto rounded = static_cast<float>(exact);
    if (static_cast<double>(rounded) != exact && std::isfinite(rounded)) {
      auto bits = imp_bits_of<std::uint32_t>(rounded);
      if (std::fabs(static_cast<double>(rounded)) > std::fabs(exact)) --bits;
      rounded = imp_bits_of<float>(bits | 1U);
    }
    return f32_to_f16(rounded);
  };
  const auto low = [](std::uint32_t v) { return static_cast<std::uint16_t>(v); };
  const auto high = [](std::uint32_t v) { return static_cast<std::uint16_t>(v >> 16); };
  return one(low(a), low(b), low(c)) | static_cast<std::uint32_t>(one(high(a), high(b), high(c))) << 16;
}
inline float exp2_near(float x) {
  const float y = std::exp2(x);
  return y < 0x1p-126F ? 0.0F : y;
}
inline float reciprocal_near(float x) {
  return 1.0F / x;
}
inline std::uint32_t and_or(std::uint32_t value, std::uint32_t mask, std::uint32_t bits) {
  return (value & mask) | bits;
}
inline std::uint32_t copied(std::uint32_t value) {
  return value;
}
inline std::uint32_t repeat_low(std::uint32_t pair) {
  return (pair & 0xffffU) * 0x10001U;
}
inline std::uint32_t repeat_high(std::uint32_t pair) {
  return (pair >> 16) * 0x10001U;
}

// With e elements in a register and lane = 4 · group + t, all shapes place elements alike:
//   a: row = group + 8 · (r & 1), k = e · t + 4 · e · (r >> 1) + i
//   b: column = group,            k = e · t + 4 · e · r + i
//   d: row = group + 8 · (i >> 1), column = 2 · t + (i & 1)
// The tensor cores sum in an order of their own; here it is ascending k. Lanes show their elements, each read once.
template <class Element, int kPerRegister, int kHalves, class Accumulator, class Read>
void mma_emulated(Accumulator (&d)[4], const std::uint32_t* a, const std::uint32_t* b, const Read& read) {
  struct Elements {
    Element a[2 * kHalves][kPerRegister], b[kHalves][kPerRegister];
  } mine;
  for (int e = 0; e < kPerRegister; ++e) {
    for (int r = 0; r < 2 * kHalves; ++r) mine.a[r][e] = read(a[r], e);
    for (int r = 0; r < kHalves; ++r) mine.b[r][e] = read(b[r], e);
  }
  emu::exchange(mine, [&](auto from) {
    const unsigned group = emu::lane() / 4, t = emu::lane() % 4;
    Elements rows[4], columns[2][4];  // of a row's group or of a column, by the lane that holds them
    for (unsigned owner = 0; owner < 4; ++owner) {
      rows[owner] = from(group * 4 + owner);
      for (unsigned i = 0; i < 2; ++i) columns[i][owner] = from((2 * t + i) * 4 + owner);
    }
    for (int i = 0; i < 4; ++i) {
      for (int half = 0; half < kHalves; ++half) {
        for (int owner = 0; owner < 4; ++owner) {
          for (int e = 0; e < kPerRegister; ++e) {
            d[i] += rows[owner].a[(i >> 1) + 2 * half][e] * columns[i & 1][owner].b[half][e];
          }
        }
      }
    }
  });
}

inline void mma_f16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  mma_emulated<float, 2, 2>(
      d, a, b, [](std::uint32_t word, int i) { return f16_to_f32(static_cast<std::uint16_t>(word >> (16 * i))); });
}
inline void mma_bf16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  mma_emulated<float, 2, 2>(
      d, a, b, [](std::uint32_t word, int i) { return bf16_to_f32(static_cast<std::uint16_t>(word >> (16 * i))); });
}
inline std::int8_t int8_of(std::uint32_t word, int i) {
  return static_cast<std::int8_t>(word >> (8 * i));
}
inline void mma_s8(int (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  mma_emulated<std::int8_t, 4, 2>(d, a, b, int8_of);
}
inline void mma_s8_k16(int (&d)[4], const std::uint32_t (&a)[2], std::uint32_t b) {
  mma_emulated<std::int8_t, 4, 1>(d, a, &b, int8_of);
}

inline void load_matrices(std::uint32_t (&d)[4], const void* shared_row) {
  emu::exchange(shared_row, [&](auto from) {
    const unsigned lane = emu::lane();
    for (unsigned i = 0; i < 4; ++i) {
      std::memcpy(&d[i], static_cast<const std::byte*>(from(8 * i + lane / 4)) + lane % 4 * 4, sizeof d[i]);
    }
  });
}
inline void load_matrices_transposed(std::uint32_t (&d)[4], const void* shared_row) {
  emu::exchange(shared_row, [&](auto from) {
    const unsigned lane = emu::lane();
    for (unsigned i = 0; i < 4; ++i) {
      std::uint16_t pair[2];
      for (unsigned j = 0; j < 2; ++j) {
        std::memcpy(&pair[j], static_cast<const std::byte*>(from(8 * i + lane % 4 * 2 + j)) + lane / 4 * 2, 2);
      }
      d[i] = pair[0] | static_cast<std::uint32_t>(pair[1]) << 16;
    }
  });
}

inline void begin_copy16(void* shared, const void* from, bool exists = true) {
  emu::begin_copy(shared, from, exists ? 16 : 0, exists ? 0 : 16);
}
inline void end_copy_group() {
  emu::end_copy_group();
}
template <int kUnderWay>
void wait_for_copies() {
  emu::wait_for_copies(kUnderWay);
}

inline Vec16 load_streamed(const void* from) {
  if (reinterpret_cast<std::uintptr_t>(from) % 16 != 0) emu::fail("a load of 16 bytes is not aligned");
  Vec16 v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

inline void wait_for_predecessor() {}
inline void let_successor_begin() {}

#endif

}  // namespace imp::cuda::arch
