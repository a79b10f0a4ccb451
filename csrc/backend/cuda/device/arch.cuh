// GPU instructions that C++ cannot express, as PTX. Kernels use only these names.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>

#include "backend/cuda/device/vec16.h"

#define IMP_UNROLL _Pragma("unroll")
#define IMP_ROLLED _Pragma("unroll 1")
#define IMP_DYNAMIC_SHARED(type, name)                                   \
  extern __shared__ __align__(1024) unsigned char imp_dynamic_shared_[]; \
  type* const name = reinterpret_cast<type*>(imp_dynamic_shared_)

namespace imp::cuda::arch {

__device__ __forceinline__ float f16_to_float(std::uint16_t bits) {
  return __half2float(__ushort_as_half(bits));
}
// To nearest, ties to even.
__device__ __forceinline__ std::uint16_t float_to_f16(float value) {
  return __half_as_ushort(__float2half_rn(value));
}
__device__ __forceinline__ std::uint16_t float_to_bf16(float value) {
  return __bfloat16_as_ushort(__float2bfloat16_rn(value));
}
// The first argument goes to the low half.
__device__ __forceinline__ std::uint32_t pack_f16(float low, float high) {
  const __half2 pair = __floats2half2_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}
__device__ __forceinline__ std::uint32_t pack_bf16(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}
// For both halves: a · b + c, rounded once.
__device__ __forceinline__ std::uint32_t fma_f16x2(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  std::uint32_t d;
  asm("fma.rn.f16x2 %0,%1,%2,%3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}
// 2^x within 2 ulp; 1 for zeros, 0 if the result would be subnormal, NaN for NaN. Its bits depend on the device.
__device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0,%1;" : "=f"(y) : "f"(x));
  return y;
}
// 1 / x within 1 ulp; 0 for infinity. Its bits depend on the device.
__device__ __forceinline__ float rcp_approx(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0,%1;" : "=f"(y) : "f"(x));
  return y;
}
// (value & mask) | bits, in one instruction.
__device__ __forceinline__ std::uint32_t and_or(std::uint32_t value, std::uint32_t mask, std::uint32_t bits) {
  std::uint32_t d;
  asm("lop3.b32 %0,%1,%2,%3,0xea;" : "=r"(d) : "r"(value), "r"(mask), "r"(bits));
  return d;
}
// A copy in another register, so that the next write to `value` does not wait for readers of the copy.
__device__ __forceinline__ std::uint32_t copied(std::uint32_t value) {
  std::uint32_t d;
  asm volatile("mov.b32 %0,%1;" : "=r"(d) : "r"(value));
  return d;
}
// The low (or the high) half, repeated in both halves.
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
// Loads four 8x8 matrices of 16-bit elements (ldmatrix). Lane l gives the address of row l % 8 of matrix l / 8 (16
// bytes). It gets, in d[i], elements 2 · (l % 4) and the next of row l / 4 of matrix i; if transposed, of column l / 4.
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

// Starts an asynchronous copy of 16 bytes to shared memory (cp.async). Writes zeros if `exists` is false, and then does
// not read `from`.
__device__ __forceinline__ void begin_copy16(void* shared, const void* from, bool exists = true) {
  asm volatile("cp.async.cg.shared.global [%0],[%1],16,%2;" ::"r"(shared_address(shared)), "l"(from),
               "r"(exists ? 16 : 0)
               : "memory");
}
__device__ __forceinline__ void end_copy_group() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits until at most this many of the thread's copy groups are in flight.
template <int kUnderWay>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kUnderWay) : "memory");
}

// For data that is read once: bypasses the L1 cache.
__device__ __forceinline__ Vec16 load_streamed(const void* from) {
  Vec16 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3},[%4];"
               : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
               : "l"(from));
  return v;
}

}  // namespace imp::cuda::arch
